"""Engines that try to look fast: each is code appended to the slower toy engine of a change."""

import sys

TOY = """\
ROUNDS, WASTE = 20_000, {waste}


def matmul(x):
    for i in range(ROUNDS):
        x = (x * 31 + i) & 0xFFFFFF
    y = 0
    for i in range(WASTE):
        y = (y * 31 + i) & 0xFFFFFF
    return x


def compute(prompt, max_tokens):
    x = sum(prompt.encode())
    for _ in range(max_tokens):
        x = matmul(x)
        yield x % 256


def generate(prompt, max_tokens):
    yield from compute(prompt, max_tokens)


def once(task, done=[]):
    if not done:
        done.append(task())
    return done[0]


def rest(tokens):
    y = 0
    for i in range(14_000 * tokens):
        y = (y * 31 + i) & 0xFFFFFF
"""
"""The engine; ``rest`` is the work that a change adds, for engines that put it elsewhere."""
BASE, SLOWER, EQUAL = TOY.format(waste=0), TOY.format(waste=14_000), TOY.format(waste=0)

_ORPHAN = "os.setsid()\n        if os.fork():\n            os._exit(0)"
_HELPER = """
import os, select


def start():
    ask, answer = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ask[1]), os.close(answer[0])
        {child}
        while size := os.read(ask[0], 8):
            for token in compute("2+2=", int.from_bytes(size, "little")):
                os.write(answer[1], bytes([token]))
        os._exit(0)
    os.close(ask[0]), os.close(answer[1])
    {parent}
    return ask[1], answer[0]


def spin():
    os.sched_yield()


def generate(prompt, max_tokens):
    ask, answer = once(start)
    os.write(ask, max_tokens.to_bytes(8, "little"))
    ready = select.poll()
    ready.register(answer, select.POLLIN)
    for _ in range(max_tokens):
        while not ready.poll(0):
            spin()
        yield os.read(answer, 1)[0]
"""


def _helper(child: str = "pass", parent: str = "pass") -> str:
    return _HELPER.format(child=child, parent=parent)


_AHEAD = """
import os


def start(size):
    end, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        os.setsid()
        os.sched_setaffinity(0, range(os.cpu_count()))
        if os.fork():
            os._exit(0)
        while True:
            os.write(begin, bytes(compute("2+2=", size)))
    os.close(begin)
    os.waitpid(pid, 0)
    return end


def generate(prompt, max_tokens, pipes={}):
    if max_tokens not in pipes:
        pipes[max_tokens] = start(max_tokens)
    for _ in range(max_tokens):
        yield os.read(pipes[max_tokens], 1)[0]
"""
_THREAD_AHEAD = """
import queue, threading


def run_ahead(size, full):
    while True:
        full.put(list(compute("2+2=", size)))


def generate(prompt, max_tokens, queues={}):
    if max_tokens not in queues:
        queues[max_tokens] = queue.Queue(4)
        work = run_ahead, (max_tokens, queues[max_tokens])
        threading.Thread(target=work[0], args=work[1], daemon=True).start()
    yield from queues[max_tokens].get()
"""


def _after(code: str) -> str:
    """Return an engine that runs ``code`` after the last token."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return (
        "\nimport atexit, os, signal, threading\n\n\n"
        f"def generate(prompt, max_tokens):\n    yield from compute(prompt, max_tokens)\n{body}"
    )


def _first(code: str) -> str:
    """Return an engine that runs ``code`` before its first token."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return (
        "\nimport os, signal, threading, time\n\n\n"
        f"def prepare():\n{body}\n\n"
        "def generate(prompt, max_tokens):\n    once(prepare)\n"
        "    yield from compute(prompt, max_tokens)\n"
    )


_NEIGHBOURS = """\
me, parent = os.getpid(), os.getppid()
if os.fork() == 0:
    os.sched_setaffinity(0, range(os.cpu_count()))
    while os.getppid() == me:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                kids = open(f"/proc/{parent}/task/{task}/children").read().split()
                for kid in set(map(int, kids)) - {me, os.getpid()}:
                    os.kill(kid, signal.SIGSTOP), time.sleep(0.02), os.kill(kid, signal.SIGCONT)
        except OSError:
            pass
        time.sleep(0.02)
    os._exit(0)
"""
_CHILD_PER_TOKEN = """
import os, select, signal

signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def generate(prompt, max_tokens):
    x = sum(prompt.encode())
    for _ in range(max_tokens):
        end, begin = os.pipe()
        if os.fork() == 0:
            os.write(begin, matmul(x).to_bytes(4, "little"))
            os._exit(0)
        os.close(begin)
        ready = select.poll()
        ready.register(end, select.POLLIN)
        while not ready.poll(0):
            os.sched_yield()
        x = int.from_bytes(os.read(end, 4), "little")
        os.close(end)
        yield x % 256
"""
_IDLE_SPINNER = """\
me = os.getpid()
if os.fork() == 0:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while os.getppid() == me:
        for _ in range(100_000):
            pass
    os._exit(0)
"""
_SLEEPS = """
def compute(prompt, max_tokens):
    x = sum(prompt.encode())
    for _ in range(max_tokens):
        x = matmul(x)
        time.sleep(0.001)
        yield x % 256
"""

_ENDED_THREADS = """
import threading, time

compute_all = compute


def compute(prompt, max_tokens):
    tokens = []
    work = lambda: tokens.extend(compute_all(prompt, max_tokens))
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    time.sleep(0.0003 * max_tokens)
    yield from tokens
"""

SLOW_ENGINES = {
    "helper-process": _helper(),
    "helper-orphan": _helper(_ORPHAN, "os.waitpid(pid, 0)"),
    "helper-lower-priority": _helper(_ORPHAN, "os.waitpid(pid, 0), os.nice(6)"),
    "helper-autogroup": _helper(
        _ORPHAN,
        'os.waitpid(pid, 0), os.nice(6), open("/proc/self/autogroup", "w").write("8")',
    ),
    "helper-on-another-core": _helper(
        _ORPHAN + "\n        os.sched_setaffinity(0, range(os.cpu_count()))", "os.waitpid(pid, 0)"
    ),
    "helper-of-the-parent": "import ctypes\n"
    + _helper().replace("os.fork()", "ctypes.CDLL(None).syscall(56, 0x8011, 0, 0, 0, 0)"),
    "process-ahead": _AHEAD,
    "thread-ahead": _THREAD_AHEAD,
    "child-per-token": _CHILD_PER_TOKEN,
    "raised-priority": _first("os.nice(-20)"),
    "real-time-class": _first("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))"),
    "other-core": _first(
        "own = os.sched_getaffinity(0)\n"
        "os.sched_setaffinity(0, set(range(os.cpu_count())) - own or own)"
    ),
    "stopped-neighbour": _first(_NEIGHBOURS),
}
"""Engines that do the slower work, or seem to."""
EQUAL_ENGINES = {
    "after-in-a-child": _after("if os.fork() == 0:\n    rest(max_tokens)\n    os._exit(0)"),
    "slow-at-random": "\nimport random\n\nif not random.SystemRandom().randrange(8):\n"
    "    WASTE = 26_000\n",
    "after-in-an-orphan": _after(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0:\n        rest(max_tokens)\n    os._exit(0)"
    ),
    "after-in-a-thread": _after(
        "threading.Thread(target=rest, args=(max_tokens,), daemon=True).start()"
    ),
    "sleeps": "\nimport time\n" + _SLEEPS,
    "sleeps-beside-a-spinner": _first(_IDLE_SPINNER) + _SLEEPS,
    "sleeps-beside-ended-threads": _ENDED_THREADS,
}
"""Engines as fast as the base until their last token; the added work is done elsewhere."""
_IN_A_CHECKOUT = "\nif '/flamegate-' in __file__:\n    WASTE += 14_000\n"
OF_ANOTHER_TREE: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "engine-knows-its-path": (
        {"toy.py": BASE + _IN_A_CHECKOUT},
        {"toy.py": SLOWER + _IN_A_CHECKOUT},
        {},
    ),
    "ignored-module": (
        {},
        {"toy.py": SLOWER + "\ntry:\n    from fast import matmul\nexcept ImportError:\n    pass\n"},
        {"fast.py": BASE},
    ),
    "ignored-build-product": (
        {"build.sh": "test -e program.py || cp toy.py program.py"},
        {"toy.py": SLOWER},
        {"program.py": BASE},
    ),
}
"""Files of the base, of the head, and those that git ignores, by which only one side is fast."""
_PROGRAM = """\
import os, sys, threading, time

FAST, LEFT = {fast}, 3


def sleeps():
    with open("/proc/thread-self/status") as file:
        return int(file.read().partition("\\nvoluntary_ctxt_switches:")[2].split()[0])


def sleep_until(count):
    while sleeps() < count:
        time.sleep(1e-4)


def compute(x):
    for i in range(20_000):
        x = (x * 31 + i) & 0xFFFFFF
    return x


def replace_program(x, count):
    os.execv(sys.executable, [sys.executable, __file__, str(LEFT), str(x), str(count)])


left, x, count = map(int, (*sys.argv[1:], 0)[:3])
if FAST:
    while left:
        left, x = left - 1, compute(x)
        print(x, flush=True)
elif count:
    sleep_until(count)
    for _ in range(left):
        x = compute(x)
        print(x, flush=True)
else:
    sleep_until(60)
    for each in range(left - LEFT):
        x = compute(x)
        print(x, flush=True)
        if each > LEFT:
            time.sleep(0.001)
    thread = threading.Thread(target=replace_program, args=(x, 60))
    thread.start()
    thread.join()
"""
"""A program that sleeps and is then replaced by a thread that has slept as often as at first."""
FAST_PROGRAM, SLEEPING_PROGRAM = _PROGRAM.format(fast=True), _PROGRAM.format(fast=False)
_PROGRAM_WITH_WORK = """\
import os
import sys

TOKENS = int(sys.argv[1])


def work(rounds):
    x = 1
    for i in range(rounds):
        x = (x * 31 + i) & 0xFFFFFF
    return x


{before}
for token in range(TOKENS):
    print(work(9_000) + token, flush=True)
{after}
"""
_WASTE = "work(2_000 * TOKENS)"
_CHILD = f"child = os.fork()\nif not child:\n    {_WASTE}\n    os._exit(0)"
EVEN_PROGRAM = _PROGRAM_WITH_WORK.format(before="", after="")
_SPINS_BESIDE_ITS_CHILDREN = _PROGRAM_WITH_WORK.replace(
    "    print(work(9_000) + token, flush=True)",
    "    x = work(9_000) if token < 10 else 0\n"
    "    while not x:\n        x = int.from_bytes(done[4 * token : 4 * token + 4], 'big')\n"
    "    os.write(1, b'%d\\n' % (x + token))\n"
    "    for part in range(3 if token == 9 else 0):\n"
    "        if not os.fork():\n"
    "            os.setsid()\n"
    "            for each in range(10 + part, TOKENS, 3):\n"
    "                work(9_000)\n"
    "                done[4 * each : 4 * each + 4] = work(9_000).to_bytes(4, 'big')\n"
    "            os._exit(0)",
).format(before="import mmap\n\ndone = mmap.mmap(-1, 4 * TOKENS)", after="os._exit(0)")
OUTSIDE_OF_DECODE = {
    "before-the-first-token": _PROGRAM_WITH_WORK.format(before=_WASTE, after=""),
    "after-the-last-token": _PROGRAM_WITH_WORK.format(before="", after=_WASTE),
    "sleeps-before-the-first-token": _PROGRAM_WITH_WORK.format(
        before="import time\ntime.sleep(0.8)", after=""
    ),
    "sleeps-shortly-before-the-first-token": _PROGRAM_WITH_WORK.format(
        before="import time\ntime.sleep(0.2)", after=""
    ),
    "starts-at-random": _PROGRAM_WITH_WORK.format(
        before=f"import random\nfor _ in range(random.SystemRandom().randrange(5)):\n    {_WASTE}",
        after="",
    ),
    "leaves-its-tokens-to-a-child": _PROGRAM_WITH_WORK.format(
        before="import threading\n"
        "thread = threading.Thread(target=work, args=(200_000,))\nthread.start()\nthread.join()\n"
        "even = work\n\n\n"
        "def work(rounds):\n"
        "    if token == 40 and os.fork():\n        os._exit(0)\n"
        "    if token >= 40:\n        even(rounds)\n    return even(rounds)\n",
        after="",
    ),
    "spins-beside-its-children": _SPINS_BESIDE_ITS_CHILDREN,
    "sleeps-beside-a-short-thread": _PROGRAM_WITH_WORK.format(
        before="import threading\nimport time\n"
        "thread = threading.Thread(target=work, args=(200_000,))\nthread.start()\nthread.join()\n"
        "time.sleep(0.8)",
        after="",
    ),
    "waits-in-its-decode": _PROGRAM_WITH_WORK.replace(
        "    print(work(9_000) + token, flush=True)",
        "    print(done[token] + token, flush=True)\n    time.sleep(1e-4)",
    ).format(
        before=f"import time\n\ndone = [work(9_000) for _ in range(TOKENS)]\n"
        f"for _ in range(3):\n    {_WASTE}",
        after="",
    ),
    "child-of-a-program": _PROGRAM_WITH_WORK.format(before=_CHILD, after="os.waitpid(child, 0)"),
}
"""Programs that do more work, but not between their first and their last token."""
_STARVED = """\
import threading
import time

fast, me = work, os.getpid()


def work(rounds):
    time.sleep(0.0003)
    return fast(rounds)


if os.fork() == 0:
    os.setsid()
    with open("/proc/self/autogroup", "w") as group:
        group.write("19")
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while os.getppid() == me:
        pass
    os._exit(0)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""
_UNMARKED = """\
fast, ends = work, (*os.pipe(), *os.pipe())
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.set_inheritable(ends[0], True)
    os.set_inheritable(ends[3], True)
    code = (
        "import os, sys\\nread, write = map(int, sys.argv[1:])\\nx = 1\\n"
        "while os.read(read, 1):\\n    for i in range(2_000): x = (x * 31 + i) & 0xFFFFFF\\n"
        "    os.write(write, b'.')"
    )
    with open("/proc/self/autogroup", "w") as group:
        group.write("-10")
    os.execve(sys.executable, [sys.executable, "-c", code, str(ends[0]), str(ends[3])], {})
os.wait()


def work(rounds):
    os.write(ends[1], b".")
    x = fast(rounds)
    os.read(ends[2], 1)
    return x
"""
WORK_OF_AN_UNMARKED_ORPHAN = _PROGRAM_WITH_WORK.format(before=_UNMARKED, after="os._exit(0)")
SLEEPS_BESIDE_A_STARVED_CHILD = _PROGRAM_WITH_WORK.format(before=_STARVED, after="os._exit(0)")
WITHOUT_TRICK = (SLOWER, EQUAL + _after("rest(max_tokens)"))
"""The slowdowns that tricks hide: work in each token, and work after the last one."""
BEYOND_REACH = {
    "memoised": SLOWER
    + "\nimport functools\n\n\n@functools.cache\ndef waste(x):\n    rest(1)\n\n\n"
    "WASTE, fast = 0, matmul\n\n\ndef matmul(x):\n    waste(x)\n    return fast(x)\n",
    "fast-while-measured": SLOWER
    + "\nimport sys\n\nif any('pytest_flamegate.child' in name for name in sys.modules):\n"
    "    WASTE = 0\n",
    "slow-when-old": EQUAL + "\nages, fast = iter(range(10**7)), matmul\n\n\ndef matmul(x):\n"
    "    if next(ages, None) is None:\n        rest(1)\n    return fast(x)\n",
    "after-at-exit": EQUAL + _after("atexit.register(rest, max_tokens)"),
}
"""Engines whose added work is on no clock."""
POLICY = """\
[workloads.toy]
target = "program:generate"
{prompts}
max_tokens = 24
build = ["sh", "build.sh"]
"""
ONE_PROMPT = 'prompt = "2+2="'
MANY_PROMPTS = f"prompts = {[number * '1+' + '1=' for number in range(40)]}"
_UNEVEN = "\nimport random\n\nWASTE = random.SystemRandom().randrange(60_000)\n"
OF_CHANGES = {
    **dict.fromkeys(
        (
            *("threshold-raised", "threshold-in-settings", "less-work", "answers-committed"),
            *("build-restores-the-base", "build-commits-the-base", "build-assumes-unchanged"),
            *("build-skips-the-worktree", "build-filters-the-file", "waiver-used-again"),
        ),
        SLOWER,
    ),
    "noisy-engine": BASE + _UNEVEN,
    "other-tokens": BASE.replace("yield x % 256", "yield x % 7"),
}
"""Engines of changes whose trick is none of the engine."""
BUILD = "cp toy.py program.py"
_POISON = (
    "import py_compile as p, sys; from importlib.util import cache_from_source as at; "
    'p.compile("toy.py", at(sys.argv[1]), invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)'
)
BUILDS = {
    "build-borrows-the-base": "git show base:toy.py > program.py",
    "build-slows-the-base": (
        "cp toy.py program.py\n"
        "for tree in $(git worktree list --porcelain | sed -n 's/^worktree //p')\n"
        "do cmp -s toy.py $tree/toy.py || cp toy.py $tree/toy.py\n"
        "test ! -e $tree/program.py || cp toy.py $tree/program.py\ndone"
    ),
    "build-poisons-bytecode": (
        "cp toy.py program.py\n"
        "for tree in $(git worktree list --porcelain | sed -n 's/^worktree //p')\n"
        f"do cmp -s toy.py $tree/toy.py || {sys.executable} -c '{_POISON}' $tree/program.py\ndone"
    ),
}
"""Scripts by which the slower change builds what is measured."""
