"""``flamegate init``: a workload file and the workflows of the required check, for this project."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.commands.ci import GITLAB
from pytest_flamegate.commands.ci_github import GITHUB
from pytest_flamegate.config.settings import read_ini
from pytest_flamegate.core import __version__, git
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.files import create_file, is_file, path_text, read_bounded, relative
from pytest_flamegate.core.json_parser import parse_json
from pytest_flamegate.core.text import quote_toml
from pytest_flamegate.engines.declare import FILE_NAME, find_file
from pytest_flamegate.engines.gguf import WORKLOADS
from pytest_flamegate.models.discover import find_model

MEASURE, JUDGE = "flamegate-measure.yml", "flamegate-judge.yml"
WORKFLOWS = (MEASURE, JUDGE, "flamegate-nightly.yml")
PIPELINE = "flamegate.gitlab-ci.yml"
INSTALL = "pytest-flamegate @ git+https://HOST/PATH/pytest-flamegate@COMMIT"
"""The package in the workflow files: replaced by the one that is installed here."""
_MAX_FILES = 5000
_MAX_BYTES = 1 << 20
_NO_ENGINES = frozenset(
    {"test", "tests", "testing", "docs", "doc", "examples", "benchmarks", "build", "dist"}
)
_COUNTS = frozenset({"max_tokens", "max_new_tokens", "n_tokens", "num_tokens"})
_HEAD = "# The workloads that flamegate measures. Written by flamegate init."
_ALLOWED = 'tokens_per_second = "5%"    # allowed drop'


@dataclass(frozen=True, slots=True)
class _Generator:
    """A Python function ``target`` that takes a prompt and a number of tokens and yields them.

    ``missing`` is a module that its file imports and that is not installed, empty if there is none.
    """

    target: str
    place: str
    missing: str


@dataclass(frozen=True, slots=True)
class _BuildSystem:
    """How a native project is built, and the program that comes of it if its file names one."""

    file: str
    command: tuple[str, ...]
    program: str


def run(_: argparse.Namespace) -> int:
    """Write the files that do not exist, and print what was found, written and left alone."""
    root, _values = read_ini(Path.cwd())
    top = git.find_top(root)
    written = []
    workloads = find_file(root)
    if workloads is not None:
        common.print_text(f"exists   {relative(workloads, root)}: left as it is")
    else:
        found, lines, step = _describe_project(root)
        text = "\n".join([_HEAD, "", *lines, ""])
        common.print_text(f"found    {found}")
        create_file(root / FILE_NAME, text.encode(), mode=0o666)
        written.append(FILE_NAME)
        common.print_text(f"wrote    {FILE_NAME}:\n\n{text}")
    steps = [] if workloads is not None else [step]
    below = "" if top is None else relative(root.resolve(), top)
    is_below = below not in ("", ".")
    if is_below:
        common.print_text(
            f"skipped  the workflows: they belong in {top}, and this project is in a directory "
            f"below it. Copy them from {find_template('github', MEASURE).parent} to "
            f".github/workflows there, and give their steps working-directory: {below}"
        )
    else:
        written += _write_workflows(root, steps)
    if top is None:
        steps.append("git init (the check compares commits)")
    if written:
        steps.append(common.git_add(*(root / each for each in written)))
        steps += [] if is_below else ["flamegate doctor --ci"]
    for step in steps:
        common.print_text(f"next     {step}")
    if not written:
        there = "the workload file" if is_below else "everything"
        common.print_text(f"nothing to write: {there} is there")
    return 0


# --- The project -------------------------------------------------------------------------------


def _describe_project(root: Path) -> tuple[str, list[str], str]:
    """Return what was found, the lines of the workload file, and the next step."""
    generators = sorted(
        find_generators(root),
        key=lambda each: (
            each.missing,
            not each.target.endswith(":generate"),
            each.target.count("."),
            each.target,
        ),
    )
    if generators:
        chosen, *more = generators
        found = f"the Python function {chosen.target} ({chosen.place})"
        own = [
            "[workloads.decode]",
            f'target = "{chosen.target}"    # called with prompt and max_tokens: {chosen.place}',
            *_keys(),
            *(f"# also found: {each.target} ({each.place})" for each in more),
        ]
        if not chosen.missing:
            return found, own, "flamegate run"
        lines = [*_embedded(), "# Your engine.", *(f"# {line.removeprefix('# ')}" for line in own)]
        first, why = f"install {chosen.missing}", "it is not installed"
        file = Path(chosen.place.partition(":")[0])
        if is_file(root / file.with_name(f"{chosen.missing}.py")):
            # Python finds a module beside a script only if that script is run.
            full = ".".join((*file.parent.parts, chosen.missing))
            first, why = f"import it in {file} as {full}", "only a script finds it there"
        step = f"{first}, remove the marks of comment in {FILE_NAME}, and type flamegate run decode"
        found += f", which needs {chosen.missing}: {why}"
        return found, lines, step
    build, model, reason = find_build(root), None, ""
    try:
        model = find_model(None, root)
        # A model in the cache of the hub may be of any project.
        model = model if model.is_relative_to(root) else None
    except FlamegateError as error:
        reason = error.problem if error.code == "E_MODEL_AMBIGUOUS" else ""
    name = None if model is None else relative(model, root)
    if name is not None and name != (shown := path_text(name)):
        name, reason = None, f"the model {shown}, which TOML cannot name: rename it to UTF-8"
    if name is not None and build is None and importlib.util.find_spec("xllamacpp"):
        lines = [
            "[workloads.decode]",
            'engine = "llama-cpp"',
            f"model = {quote_toml(name)}",
            *_keys(),
        ]
        return f"the model {name}, for the engine llama-cpp", lines, "flamegate run"
    parts = [each for each in (build and build.file, name, reason) if each]
    found = f"{' and '.join(parts) or 'no engine'}; the command of the engine is not known"
    step = (
        f"edit {FILE_NAME}: write the engine's command, remove the marks of comment, and type "
        "flamegate run decode"
    )
    return found, [*_embedded(), *_example(build, name)], step


def _embedded() -> Iterator[str]:
    yield "# These run the model that comes with flamegate, not your engine, to show that measuring"
    yield "# works here. Replace them: flamegate check needs a workload of this repository's code."
    for name, prompt, max_tokens in WORKLOADS:
        yield f"[workloads.{name}]"
        yield 'engine = "embedded"'
        yield f"prompt = {quote_toml(prompt)}"
        yield f"max_tokens = {max_tokens}"
        yield ""


def _example(build: _BuildSystem | None, model: str | None) -> Iterator[str]:
    """Yield a declaration in comments for a program, with its parts that are known."""
    options = [*(("--model", "{model}") if model else ()), "--prompt", "{prompt}"]
    command = [build.program if build else "path/to/engine", *options]
    yield "# Your engine. Correct its options, and remove the marks of comment."
    yield "# [workloads.decode]"
    yield f"# command = {quote_toml([*command, '--max-tokens', '{max_tokens}'])}"
    if build:
        yield f"# build = {quote_toml(list(build.command))}    # found: {build.file}"
    if model:
        yield f"# model = {quote_toml(model)}"
    yield '# token_unit = "word"    # how tokens are counted in the output: byte, word, line'
    # A program without a model is a fast one, and a profiler takes 500 samples a second.
    for line in _keys("64" if model else "2000    # so many that a run takes about a second"):
        yield f"# {line}"


def _keys(max_tokens: str = "32") -> tuple[str, ...]:
    return 'prompt = "What is 2+2?"', f"max_tokens = {max_tokens}", _ALLOWED


def find_generators(root: Path) -> Iterator[_Generator]:
    """Yield the functions of the project that the engine ``python`` can call."""
    for name in _list_sources(root):
        parts = Path(name).with_suffix("").parts
        if _NO_ENGINES.intersection(parts) or parts[-1].startswith("test_"):
            continue
        # A package below src has to be installed to be imported.
        needed = [parts[1]] if parts[0] == "src" and len(parts) > 1 else []
        parts = parts[1:] if needed else parts
        module = ".".join(parts).removesuffix(".__init__")
        if not all(part.isidentifier() for part in module.split(".")):
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(read_bounded(root / name, _MAX_BYTES))
        except (FlamegateError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        for each in filter(_yields_tokens, found):
            modules = (*needed, *_imported_modules(tree))
            missing = next((one for one in modules if not _can_be_imported(one, root)), "")
            yield _Generator(f"{module}:{each.name}", f"{name}:{each.lineno}", missing)


def _yields_tokens(function: ast.FunctionDef) -> bool:
    """Whether a function takes prompt and number of tokens, nothing else, and yields."""
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    required = len(names) - len(arguments.defaults)
    is_callable = (
        len(names) >= 2
        and required <= 2
        and names[0] == "prompt"
        and names[1] in _COUNTS
        and None not in arguments.kw_defaults
    )
    return is_callable and _holds_yield(function)


def _holds_yield(function: ast.FunctionDef) -> bool:
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    return False


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for each in tree.body:
        if isinstance(each, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            yield each.module.partition(".")[0]


def _can_be_imported(name: str, root: Path) -> bool:
    is_own = (root / name).is_dir() or is_file(root / f"{name}.py")
    try:
        return is_own or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def find_build(root: Path) -> _BuildSystem | None:
    """Return how the project is built by Cargo, CMake or make; None without such a file."""
    for name, read in (
        ("Cargo.toml", _read_cargo),
        ("CMakeLists.txt", _read_cmake),
        ("Makefile", _read_makefile),
    ):
        try:
            text = read_bounded(root / name, _MAX_BYTES).decode("utf-8", "replace")
        except FlamegateError:
            continue
        return read(text)
    return None


def _read_cargo(text: str) -> _BuildSystem:
    try:
        document = tomllib.loads(text)
    except ValueError:
        document = {}
    package, programs = document.get("package"), document.get("bin")
    tables = [*(programs if isinstance(programs, list) else ()), package]
    names = [each.get("name") for each in tables if isinstance(each, dict)]
    name = next((each for each in names if isinstance(each, str)), "engine")
    return _BuildSystem("Cargo.toml", ("cargo", "build", "--release"), f"target/release/{name}")


def _read_cmake(text: str) -> _BuildSystem:
    match = re.search(r"^\s*add_executable\s*\(\s*([\w.+-]+)", text, re.M | re.I)
    script = "cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build"
    program = f"build/{match[1] if match else 'engine'}"
    return _BuildSystem("CMakeLists.txt", ("sh", "-c", script), program)


def _read_makefile(text: str) -> _BuildSystem:
    targets = re.findall(r"^([\w][\w./-]*)\s*:(?!=)", text, re.M)
    phony = {"all", "clean", "install", "test", "check", "run", "build"}
    program = next((each for each in targets if each not in phony), "engine")
    return _BuildSystem("Makefile", ("make",), f"./{program}")


def _list_sources(root: Path) -> list[str]:
    """Return the Python files that git does not ignore, or all without a repository."""
    listed = git.query(root, "ls-files", "-co", "--exclude-standard", "-z", "--", "*.py")
    if listed is not None:
        return sorted(filter(None, listed.split("\0")))[:_MAX_FILES]
    found: list[str] = []
    for place, directories, files in os.walk(root):
        directories[:] = [each for each in directories if each[0] != "." and each != "node_modules"]
        found += (relative(Path(place, each), root) for each in files if each.endswith(".py"))
        if len(found) > _MAX_FILES:
            break
    return sorted(found)


# --- The workflows -----------------------------------------------------------------------------


def _write_workflows(root: Path, steps: list[str]) -> list[str]:
    """Write the files of the code host that do not exist; return them, and add to ``steps``."""
    remotes = git.query(root, "remote", "-v") or ""
    has_gitlab = (root / GITLAB).exists() or "gitlab" in remotes
    has_github = (root / ".github").exists() or "github" in remotes or not has_gitlab
    files: dict[str, str] = {}
    if has_github:
        files |= {f"{GITHUB}/{name}": _read_template("github", name) for name in WORKFLOWS}
    if has_gitlab:
        own = f".gitlab/{PIPELINE}"
        include = f"include:\n  - local: {own}\n"
        if is_file(root / GITLAB) and own not in (root / GITLAB).read_text("utf-8", "replace"):
            steps.append(f"add to {GITLAB}:  include: [{{local: {own}}}]")
        files |= {own: _read_template("gitlab", PIPELINE), GITLAB: include}
    package = find_installed()
    written = []
    for name, text in files.items():
        data = text.replace(INSTALL, package or INSTALL).encode()
        if (root / name).exists() or (root / name).is_symlink():
            common.print_text(f"exists   {name}: left as it is")
            continue
        create_file(root / name, data, mode=0o666)
        common.print_text(f"wrote    {name}")
        written.append(name)
    if written and package is None:
        steps.append(f"write in the workflows where to install from: {INSTALL}")
    return written


def _read_template(host: str, name: str) -> str:
    return find_template(host, name).read_text("utf-8")


def find_template(host: str, name: str) -> Path:
    """Return the path of a workflow file: a wheel holds it in the package, a checkout in docs."""
    package = Path(str(resources.files("pytest_flamegate")))
    installed = package / "workflows" / host / name
    return installed if installed.is_file() else package.parent / "docs" / host / name


def find_installed() -> str | None:
    """Return the requirement that installs this very package; None if it is not known."""
    try:
        text = distribution("pytest-flamegate").read_text("direct_url.json")
        origin = parse_json(text.encode()) if text else None
    except (PackageNotFoundError, FlamegateError):
        return None
    if origin is None:
        return f"pytest-flamegate=={__version__}"
    version = origin.get("vcs_info")
    if not version:
        return None  # a directory of this machine
    return f"pytest-flamegate @ {version['vcs']}+{origin['url']}@{version['commit_id']}"
