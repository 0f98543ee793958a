"""Which modules of the package write files, read from its syntax.

Processes, the network, pickles and lenient parsers are found by ruff (TID251 and S in
``pyproject.toml``). What writes all the same stands in ``ALLOWED``.
"""

import ast
import sys
import tomllib
from pathlib import Path

import pytest_flamegate
from pytest_flamegate.core import process

PACKAGE = Path(pytest_flamegate.__file__).parent


def name_of(node: ast.AST) -> str:
    """``a.b.c`` of a name or an attribute, else nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return ""


def writes(node: ast.AST) -> bool:
    """Whether it makes, changes or removes a file, beyond what only reads."""
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node.func)
    last = name.split(".")[-1] if name else getattr(node.func, "attr", "")
    method = isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
    return (
        last in _WRITERS
        or name in _WRITERS
        or (last == "replace" and method)
        or (last in ("open", "FileIO", "fdopen") and _opens_to_write(node, name))
    )


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

_TEMPORARY = "in a temporary directory that it made and removes"
ALLOWED = {
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
    "commands/accept.py": "removes a waiver of this change that the new one replaces",
    "commands/check_answer.py": "removes the answer of an earlier check before it has its own",
    "commands/sign.py": "takes the private key back that it has just made "
    "where the public one cannot be made",
    "commands/pictures.py": "makes OUTPUT_DIR; files go through the store",
    "cli.py": "opens /dev/null for a stream that nobody reads",
    "core/progress.py": "points standard output at /dev/null where nobody reads it",
    "run/processes.py": _TEMPORARY,
    "run/instruments.py": _TEMPORARY,
    "profile/profilers/callgrind.py": _TEMPORARY,
    "profile/profilers/instructions.py": _TEMPORARY,
    "profile/profilers/base.py": _TEMPORARY,
    "profile/profilers/tools.py": _TEMPORARY,
    "profile/profilers/perf_data.py": "removes what CPython wrote for a process of ours",
}
"""The modules that write, and why."""


def test_only_modules_that_are_allowed_write_and_each_does() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if writes(node)
    }
    assert found.keys() == ALLOWED.keys(), "if it must write, say why in ALLOWED"


WRITES = (
    *("p.write_text('')", "open(p, 'w')", "p.open('ab')", "p.unlink()", "shutil.rmtree(p)"),
    *("os.open(p, os.O_WRONLY)", "os.open(p, flags)", "p.replace(q)", "f(x)().touch()"),
)
HARMLESS = ("open(p)", "os.open(p, os.O_NOFOLLOW)", "text.replace('a', 'b')", "replace(a, name=1)")


def test_a_write_is_found_and_nothing_else() -> None:
    found = [code for code in (*WRITES, *HARMLESS) if any(map(writes, ast.walk(ast.parse(code))))]
    assert found == [*WRITES]


def test_the_network_is_not_even_loaded() -> None:
    """Imported whole, the verifier's door brings no module of the network with it."""
    program = (
        "import sys, pytest_flamegate.cli; print(sorted({'socket', 'pickle'} & {*sys.modules}))"
    )
    found = process.run([sys.executable, "-P", "-c", program], timeout_s=60)
    assert found.stdout.split() == [b"[]"], found.stderr


def test_no_module_compiles_text_or_imports_a_banned_module_by_name() -> None:
    """What ruff does not see."""
    banned = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))
    names = banned["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert "pickle" in names
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = name_of(node.func)
                assert name not in ("compile", "builtins.compile"), path
                if name.endswith(("import_module", "__import__")):
                    given = {each.value for each in node.args if isinstance(each, ast.Constant)}
                    assert not given & names.keys(), path
