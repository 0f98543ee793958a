"""What the package may never do, read from its syntax: no pickle, no stray process or write.

Ruff's rules S102 to S702 find shells, guessable files and fixed temporary paths. Each rule here
has an offence that it must find. What is allowed all the same stands in ``ALLOWED``.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import pytest_flamegate
from pytest_flamegate.core import process

PACKAGE = Path(pytest_flamegate.__file__).parent

Finder = Callable[[ast.AST], Iterator[ast.AST]]


def name_of(node: ast.AST) -> str:
    """``a.b.c`` of a name or an attribute, else nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return ""


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, name_of(node.func)


def uses(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Whatever is called, and every module and ``module.name`` that is imported."""
    for call, name in calls(tree):
        yield call, name
        if name.endswith(("import_module", "__import__")):
            yield from ((call, str(n.value)) for n in call.args if isinstance(n, ast.Constant))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node, f"{node.module}.{each.name}") for each in node.names)


def using(*names: str) -> Finder:
    """Find uses of ``names`` and of all that they contain."""

    def find(tree: ast.AST) -> Iterator[ast.AST]:
        beneath = tuple(f"{name}." for name in names)
        yield from (n for n, name in uses(tree) if name in names or name.startswith(beneath))

    return find


def writing(tree: ast.AST) -> Iterator[ast.AST]:
    """Whatever makes, changes or removes a file, beyond what only reads."""
    for node, name in calls(tree):
        last = name.split(".")[-1] if name else getattr(node.func, "attr", "")
        method = isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
        if (
            last in _WRITERS
            or name in _WRITERS
            or (last == "replace" and method)
            or (last in ("open", "FileIO", "fdopen") and _opens_to_write(node, name))
        ):
            yield node


_WRITERS = frozenset(
    {
        *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "mkstemp", "mkdtemp"),
        *("unlink", "rmdir", "rmtree", "rename", "renames", "symlink", "os.remove", "os.link"),
        *("symlink_to", "hardlink_to", "copyfile", "copy2", "copytree", "shutil.copy"),
        *("shutil.move", "ftruncate", "chmod", "fchmod", "chown", "utime", "os.truncate"),
        *("NamedTemporaryFile", "TemporaryDirectory"),
    }
)


def _opens_to_write(node: ast.Call, name: str) -> bool:
    if name == "os.open":
        flags = {name_of(each) for told in node.args[1:] for each in ast.walk(told)} - {""}
        # Flags that were put together elsewhere may hold anything.
        return not flags <= {"os", "os.O_RDONLY", *_READING}
    told = [*node.args, *(each.value for each in node.keywords if each.arg == "mode")]
    modes = [
        each.value
        for each in told
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and 0 < len(each.value) < 4
        and set(each.value) <= set("rwaxbt+")
    ]
    return any(set(mode) & set("wax+") for mode in modes)


_READING = frozenset(
    f"os.O_{flag}" for flag in ("CLOEXEC", "DIRECTORY", "NOFOLLOW", "NONBLOCK", "NOATIME")
)

RULES: dict[str, tuple[Finder, tuple[str, ...], tuple[str, ...]]] = {
    "a pickle": (
        using("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "joblib"),
        ("import pickle", "from marshal import loads", "import_module('shelve')"),
        (),
    ),
    "code from text": (
        using("eval", "exec", "compile", "builtins.eval", "builtins.exec"),
        ("eval(x)", "exec(x)", "compile(x, '', 'exec')"),
        ("re.compile(x)",),
    ),
    "a lenient YAML": (using("yaml"), ("import yaml", "from yaml import load"), ()),
    "a process": (
        using(
            *("subprocess", "multiprocessing", "pty", "asyncio.subprocess"),
            *("os.fork", "os.posix_spawn", "os.posix_spawnp", "os.execv", "os.execve"),
            *("os.execvp", "os.execvpe", "os.spawnv", "os.kill", "os.killpg"),
        ),
        ("import subprocess", "from subprocess import run", "os.fork()", "os.kill(1, 9)"),
        ("process.run(a)",),
    ),
    "the network": (
        using(
            *("socket", "ssl", "http", "urllib.request", "ftplib", "smtplib", "xmlrpc"),
            *("requests", "httpx", "aiohttp", "urllib3", "socketserver"),
        ),
        ("import socket", "import requests", "from urllib.request import urlopen"),
        ("from urllib.parse import quote",),
    ),
    "XML read": (
        using("xml", "lxml", "defusedxml"),
        ("import xml.etree.ElementTree", "from lxml import etree"),
        (),
    ),
    "lenient JSON": (
        using("json.load", "json.loads", "json.JSONDecoder"),
        ("json.loads(x)", "json.load(f)", "from json import loads"),
        ("json.dumps(x)",),
    ),
    "a write": (
        writing,
        (
            "p.write_text('')",
            "open(p, 'w')",
            "p.open('ab')",
            "p.unlink()",
            "shutil.rmtree(p)",
            "os.open(p, os.O_WRONLY)",
            "os.open(p, flags)",
            "p.replace(q)",
            "f(x)().touch()",
        ),
        (
            "open(p)",
            "os.open(p, os.O_RDONLY | os.O_NOFOLLOW)",
            "text.replace('a', 'b')",
            "replace(thing, name=1)",
        ),
    ),
}

_TEMPORARY = "in a temporary directory that it made and removes"
_ARGUMENT = "what this package gave its own child to load"
ALLOWED: dict[str, dict[str, str]] = {
    "a process": {
        "core/process.py": "the one place that starts and ends processes",
        "core/process_system.py": "sends SIGKILL for core/process.py",
    },
    "the network": {
        "observe/http.py": "the one place that asks a server",
        "profile/profilers/perf.py": "a pair of connected sockets: perf's control, no address",
    },
    "a lenient YAML": {
        "commands/ci_files.py": "composes the safe loader's nodes, and makes no objects of them"
    },
    "XML read": {"report/markup.py": "escapes what is written; nothing is parsed"},
    "lenient JSON": {
        "core/json_parser.py": "the strict parser itself",
        "child/serve.py": _ARGUMENT,
        "receipt/documents.py": "a schema that is installed, and a receipt composed here",
        "observe/completions.py": "what a server streams; every figure is looked at by itself",
        "engines/figure_sources.py": "what its own child prints: named groups, as text",
        "observe/engine_process.py": "a refusal that this package's own child told over its pipe",
        "observe/served.py": "what an engine reports, from this package's own child; every value "
        "is checked as it is read",
    },
    "a write": {
        "child/hosting.py": "opens the null device, for what a hosted test prints",
        "receipt/store.py": "the one place that writes what must survive",
        "core/files.py": "its file operations, and a cache that no result rests on",
        "core/locks.py": "its locks, and the one that all users of a machine share",
        "run/hosts.py": "appends to the file that GITHUB_STEP_SUMMARY names",
        "observe/scratch.py": "removes our temporary directories, those of dead processes too",
        "observe/worktree.py": "checkouts in a temporary directory, found and removed by name",
        "child/serve.py": "writes where its parent says, " + _TEMPORARY,
        "child/relocation.py": "copies libraries where its parent says, " + _TEMPORARY,
        "observe/pairs.py": _TEMPORARY,
        "commands/sign.py": "takes the private key back that it has just made "
        "where the public one cannot be made",
        "commands/pictures.py": "makes OUTPUT_DIR; files go through the store",
        "cli.py": "opens /dev/null for a stream that nobody reads",
        "commands/common.py": "points standard output at /dev/null where nobody reads it",
        "run/processes.py": _TEMPORARY,
        "run/instruments.py": _TEMPORARY,
        "profile/profilers/callgrind.py": _TEMPORARY,
        "profile/profilers/instructions.py": _TEMPORARY,
        "profile/profilers/base.py": _TEMPORARY,
        "profile/profilers/tools.py": _TEMPORARY,
        "profile/profilers/perf_data.py": "removes what CPython wrote for a process of ours",
    },
}
"""What breaks a rule with good reason: the rule, the module, the reason."""


@cache
def trees() -> dict[str, ast.AST]:
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def offences(rule: str) -> dict[str, list[int]]:
    """The lines of every module that break ``rule``, allowed or not."""
    found = {
        name: sorted({getattr(node, "lineno", 0) for node in RULES[rule][0](tree)})
        for name, tree in trees().items()
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize("rule", RULES)
def test_only_modules_that_are_allowed_break_it_and_each_does(rule: str) -> None:
    allowed = ALLOWED.get(rule, {}).keys()
    found = offences(rule)
    wrong = {name: lines for name, lines in found.items() if name not in allowed}
    assert wrong == {}, f"{rule}, in these lines; if it must be, say why in ALLOWED"
    assert allowed <= found.keys()


@pytest.mark.parametrize("rule", RULES)
def test_planted_offences_are_found_and_nothing_else(rule: str) -> None:
    find, planted, harmless = RULES[rule]
    found = [text for text in (*planted, *harmless) if any(find(ast.parse(text)))]
    assert found == [*planted]


def test_the_network_is_not_even_loaded() -> None:
    """Imported whole, the verifier's door brings no module of the network with it."""
    program = (
        "import sys, pytest_flamegate.cli; print(sorted({'socket', 'pickle'} & {*sys.modules}))"
    )
    found = process.run([sys.executable, "-P", "-c", program], timeout_s=60)
    assert found.stdout.split() == [b"[]"], found.stderr
