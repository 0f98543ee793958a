"""Imports of the base side come from its checkout, however the project is importable."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

import pytest_flamegate
from pytest_flamegate.child.relocation import TreePair
from pytest_flamegate.core.files import real_path
from tests.workload.repositories import write

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

CHILD = """
import json, sys
from pathlib import Path
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.child.relocation import relocate_imports
project, checkout, before, after = sys.argv[1:]
exec(before)
found = {}
try:
    relocator = relocate_imports(Path(project), Path(checkout))
    exec(after)
    relocator.check()
except FlamegateError as error:
    found["error"] = [error.code, str(error)]
except ImportError as error:
    found["missing"] = str(error)
print(json.dumps(found))
"""


class Trees:
    """A project and a checkout of it, and a Python that is relocated from the one to the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = tmp_path / "my proj ü"
        self.checkout = tmp_path / "tmp/flamegate-x/my proj ü"
        for each in (self.project, self.checkout):
            each.mkdir(parents=True)

    def both(self, *names: str, **files: str) -> None:
        """Write files on both sides; SIDE in their names and text says which side it is."""
        for name, text in {**dict.fromkeys(names, "side = 'SIDE'"), **files}.items():
            write(self.project, {name: text.replace("SIDE", "project")})
            write(self.checkout, {name: text.replace("SIDE", "checkout")})

    def run(self, after: str, before: str = "", path: tuple[Path, ...] = (), **given: Any) -> Any:
        """Run ``after`` relocated; return the values that it puts into ``found``."""
        sides = [str(given.get(name, getattr(self, name))) for name in ("project", "checkout")]
        search = os.pathsep.join(map(str, path))
        usual = {"PYTHONPATH": search, "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            [sys.executable, "-P", "-c", CHILD, *sides, before, after],
            env={**os.environ, **usual, **given.get("env", {})},
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(done.stdout.decode().splitlines()[-1])

    def side(self, module: str, before: str = "", path: tuple[Path, ...] = (), **given: Any) -> Any:
        """Return the side that ``module`` comes from, or the error of its import."""
        code = f"import {module}; found['side'] = {module}.side"
        found = self.run(code, before, path, **given)
        return found.get("side") or found.get("missing") or found["error"]


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


FINDER = """
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
{body}

sys.meta_path.append(Finder)
"""
EDITABLE = """
for name, place in {mapping}.items():
    if fullname == name or fullname.startswith(name + "."):
        base = Path(place, *fullname.removeprefix(name).split(".")[1:])
        for file in (base / "__init__.py", *(Path(f"{{base}}{{s}}") for s in {suffixes})):
            if file.exists():
                return spec_from_file_location(fullname, file)
"""
NAMESPACE = """
if fullname == "space":
    spec = ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = [sys.argv[1] + "/ns", "__editable__.placeholder"]
    return spec
"""
ODD = """
if fullname == "odd":
    return ModuleSpec(fullname, cls(), origin=sys.argv[1] + "/odd.py")
"""


def finder(body: str) -> str:
    """Return code that adds a finder with this ``find_spec``."""
    return FINDER.format(body=indent(body, " " * 8))


def editable(mapping: dict[str, Path]) -> str:
    """Return code that makes these names importable the way setuptools' editable installs do."""
    places = {name: str(place) for name, place in mapping.items()}
    return finder(EDITABLE.format(mapping=places, suffixes=[".py", SUFFIX]))


# Name: files of both sides, files of one side, entries of the path, code, values that it sets.
# SIDE is the name of the side, PROJECT and CHECKOUT are its tops.
IMPORTS: dict[str, tuple[dict[str, str], tuple[str, ...], str, dict[str, str]]] = {
    "source directory": (
        {
            "src/pkg/__init__.py": "from pkg.sub import side\nfrom . import deep",
            "src/pkg/sub.py": "side = 'SIDE'",
            "src/pkg/deep/__init__.py": "side = 'SIDE'",
        },
        ("src",),
        "import pkg; found.update(side=pkg.side, deep=pkg.deep.side, file=pkg.__file__)",
        {"side": "checkout", "deep": "checkout", "file": "CHECKOUT/src/pkg/__init__.py"},
    ),
    "script next to its module": (
        {"bench.py": "import helper; side = helper.side", "helper.py": "side = 'SIDE'"},
        (),
        "sys.path.insert(0, sys.argv[1]); import bench; found['side'] = bench.side",
        {"side": "checkout"},
    ),
    "namespace package": (
        {"src/space/mine.py": "side = 'SIDE'", "../other/space/theirs.py": "side = 'theirs'"},
        ("src", "../other"),
        "import space.mine as m, space.theirs as t\nfound.update(m=m.side, t=t.side)",
        {"m": "checkout", "t": "theirs"},
    ),
    "data of the package": (
        {"src/pkg/__init__.py": "", "src/pkg/data.txt": "SIDE"},
        ("src",),
        "import pkg, pkgutil, importlib.resources as r\n"
        "found['resource'] = r.files('pkg').joinpath('data.txt').read_text()\n"
        "found['beside'] = Path(pkg.__file__).with_name('data.txt').read_text()\n"
        "found['get'] = pkgutil.get_data('pkg', 'data.txt').decode()",
        {"resource": "checkout", "beside": "checkout", "get": "checkout"},
    ),
    "environment in the project": (
        {
            ".venv/lib/python3/site-packages/installed.py": "side = 'installed by SIDE'",
            ".env/pyvenv.cfg": "home = /usr/bin",
            ".env/lib/plain.py": "side = 'plain of SIDE'",
            "mine.py": "side = 'SIDE'",
        },
        (".venv/lib/python3/site-packages", ".env/lib", ""),
        "import installed, plain, mine\nfound.update(i=installed.side, p=plain.side, m=mine.side)",
        {"i": "installed by project", "p": "plain of project", "m": "checkout"},
    ),
    "Python that the engine starts": (
        {"src/pkg.py": "side = 'SIDE'"},
        ("src",),
        "import pkg, subprocess\n"
        "command = [sys.executable, '-c', 'import pkg; print(pkg.side)']\n"
        "found['side'] = subprocess.check_output(command, text=True).strip()",
        {"side": "checkout"},
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_come_from_the_checkout(trees: Trees, name: str) -> None:
    files, path, code, expected = IMPORTS[name]
    trees.both(**files)
    found = trees.run(code, path=tuple(trees.project / each for each in path))
    assert found == {
        key: value.replace("CHECKOUT", str(trees.checkout)) for key, value in expected.items()
    }


def test_finder_of_an_editable_install(trees: Trees) -> None:
    files = {"lib/__init__.py": "from pkg.sub import side", f"lib/fast{SUFFIX}": ""}
    trees.both("lib/sub.py", "single.py", **files)
    before = editable({"pkg": trees.project / "lib", "single": trees.project / "single"})
    found = trees.run(
        "import pkg, single; found.update(one=pkg.side, two=single.side, path=list(pkg.__path__))",
        before,
    )
    path = [str(trees.checkout / "lib")]
    assert found == {"one": "checkout", "two": "checkout", "path": path}
    # The loader of the checkout's file is asked, and the file is none.
    assert str(trees.checkout) in trees.side("pkg.fast", before)


def test_namespace_package_of_a_finder(trees: Trees) -> None:
    trees.both("ns/mine.py")
    assert trees.side("space.mine", finder(NAMESPACE)) == "checkout"
    shutil.rmtree(trees.checkout / "ns")
    assert "No module named 'space'" in trees.side("space", finder(NAMESPACE))


def test_strict_editable_install(trees: Trees) -> None:
    trees.both("src/pkg/sub.py", "src/space/mine.py")
    trees.both(**{"src/pkg/__init__.py": "from pkg.sub import side"})
    links = trees.project / "build/__editable__.toy-1-py3-none-any"
    for name in ("pkg/__init__.py", "pkg/sub.py", "space/mine.py"):
        (links / name).parent.mkdir(parents=True, exist_ok=True)
        (links / name).symlink_to(trees.project / "src" / name)
    for module in ("pkg", "space.mine"):
        assert trees.side(module, path=(links,)) == "checkout"
    (trees.checkout / "src/space/mine.py").unlink()
    assert "not at the revision" in trees.side("space.mine", path=(links,))


def test_modules_of_one_side(trees: Trees) -> None:
    trees.both(**{"src/pkg/__init__.py": ""})
    write(trees.checkout, {"src/pkg/old.py": "side = 'old'", "src/old.py": "side = 'old'"})
    write(trees.project, {"src/pkg/new.py": "", "src/new.py": ""})
    src = trees.project / "src"
    for name in ("", "pkg."):
        assert trees.side(f"{name}old", path=(src,)) == "old"
        assert "No module named" in trees.side(f"{name}new", path=(src,))
    # An editable install no longer knows the one, and knows the other.
    before = editable({"pkg": src / "pkg", "new": src / "new"})
    assert trees.run("import pkg, old; found['side'] = old.side", before) == {"side": "old"}
    assert "not at the revision" in trees.side("new", before)


def test_modules_that_became_packages(trees: Trees) -> None:
    write(trees.project, {"one/__init__.py": "side = 'project'", "two.py": "side = 'project'"})
    write(trees.checkout, {"one.py": "side = 'checkout'", "two/__init__.py": "side = 'checkout'"})
    before = editable({"one": trees.project / "one", "two": trees.project / "two"})
    assert trees.side("one", before) == trees.side("two", before) == "checkout"


def test_project_in_the_prefix_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    sides = TreePair(real_path(tmp_path / "src/app"), real_path(tmp_path / "checkout"))
    moved = sides.relocate(tmp_path / "src/app/pkg.py")
    assert moved == sides.checkout / "pkg.py"


def test_the_embedded_engine_is_code_under_test(trees: Trees) -> None:
    package = Path(pytest_flamegate.__file__).resolve().parent
    write(trees.checkout, {"pytest_flamegate/child/embedded/__init__.py": "side = 'checkout'"})
    given = trees.run(
        "import pytest_flamegate.child.embedded as e, pytest_flamegate.models.gguf as g\n"
        "found.update(side=e.side, tool=g.__file__)",
        project=package.parent,
    )
    assert given == {"side": "checkout", "tool": str(package / "models/gguf.py")}


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("how", ["path", "finder"])
def test_compiled_module_that_the_checkout_lacks(trees: Trees, how: str, swallow: bool) -> None:
    trees.both(**{"pkg/__init__.py": ""})
    write(trees.project, {f"pkg/fast{SUFFIX}": "", f"top{SUFFIX}": ""})
    places = {"pkg": trees.project / "pkg", "top": trees.project / "top"}
    before, path = (editable(places), ()) if how == "finder" else ("", (trees.project,))
    for name in ("pkg.fast", "top"):
        code = f"try: import {name}\nexcept Exception: pass" if swallow else f"import {name}"
        code, said = trees.run(f"import pkg\n{code}", before, path)["error"]
        assert code == "E_BASE_NOT_BUILT"
        assert str(trees.project / name.replace(".", "/")) in said
        assert "build" in said


@pytest.fixture
def compiled() -> Path:
    """The file of a compiled module of Python's own library."""
    found = importlib.util.find_spec("_codecs_kr")
    if found is None or SUFFIX not in str(found.origin):
        pytest.skip("this Python has no compiled _codecs_kr")
    return Path(str(found.origin))


LIBRARIES = """
import ctypes, os
from pytest_flamegate.child.relocation import copy_libraries
try:
    ctypes.CDLL(b"libc.so.6")
    as_bytes = os.fsencode
except TypeError:  # CPython 3.13.0 itself takes no bytes
    as_bytes = str
copy_libraries(Path(checkout), sys.argv[2] + "/../copies")
import _codecs_kr
found["file"] = _codecs_kr.__file__
name = checkout + "/lib/libplain.so"
names = [name, as_bytes(name), Path(name)]
found["handles"] = len({ctypes.CDLL(each, mode=ctypes.RTLD_GLOBAL)._handle for each in names})
maps = Path("/proc/self/maps").read_text().splitlines()
found["mapped"] = [line.split(maxsplit=5)[-1] for line in maps if ".so" in line]
for key in ("libc.so.6", "bytes", None, "/no/such.so", 7):
    each = {"bytes": as_bytes("libc.so.6"), "/no/such.so": as_bytes("/no/such.so")}.get(key, key)
    try:
        found[str(key)] = ctypes.CDLL(name=each, use_errno=True)._handle != 0
    except (OSError, TypeError) as error:
        found[str(key)] = type(error).__name__
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what is mapped")
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "no room for copies"])
def test_libraries_of_the_project_are_loaded_from_copies(
    trees: Trees, tmp_path: Path, compiled: Path, copied: bool
) -> None:
    """A library that is opened by several kinds of name has one copy; others have none."""
    home = trees.checkout.parent / "copies"
    if copied:
        home.mkdir()
    trees.both("lib/notes")
    for side in (trees.project, trees.checkout):
        shutil.copy2(compiled, side)
        shutil.copy2(compiled, side / "lib/libplain.so")
    found = trees.run(LIBRARIES, "sys.path.insert(0, project)")
    assert found["file"] == str(trees.checkout / compiled.name)
    mapped = {Path(each) for each in found["mapped"] if str(tmp_path) in each}
    assert {each.name for each in mapped} == {compiled.name, "libplain.so"}
    assert all(each.is_relative_to(home if copied else trees.checkout) for each in mapped)
    assert found["handles"] == 1
    # It finds the files that lie next to its original.
    assert [len(list(home.glob(each))) for each in ("*", "*/notes")] == [2 * copied, copied]
    assert found["libc.so.6"] is found["bytes"] is found["None"] is True
    assert (found["/no/such.so"], found["7"]) == ("OSError", "TypeError")


def test_source_that_the_project_runs_compiled(trees: Trees) -> None:
    trees.both("pkg/hot.py", **{"pkg/__init__.py": ""})
    write(trees.project, {f"pkg/hot{SUFFIX}": ""})
    assert trees.side("pkg.hot", path=(trees.project,))[0] == "E_BASE_NOT_BUILT"
    (trees.project / "pkg/hot.py").unlink()
    assert trees.side("pkg.hot", path=(trees.project,)) == "checkout"


AROUND = """
import importlib.util as u, mine
s = u.spec_from_file_location('around', sys.argv[1] + '/mine.py')
sys.modules['around'] = m = u.module_from_spec(s); s.loader.exec_module(m)
"""


@pytest.mark.parametrize(
    ("before", "after", "module"), [("import mine", "", "mine"), ("", AROUND, "around")]
)
def test_module_of_the_wrong_side(trees: Trees, before: str, after: str, module: str) -> None:
    """It was imported too early, or loaded around the finder."""
    trees.both("mine.py")
    code, problem = trees.run(after, before, (trees.project,))["error"]
    assert code == "E_WRONG_SIDE"
    assert module in problem


def test_base_that_loads_nothing_of_the_checkout(trees: Trees, tmp_path: Path) -> None:
    assert trees.run("import json.tool")["error"][0] == "E_SAME_CODE"
    packages = tmp_path / "env/site-packages"
    write(packages, {"other/__init__.py": ""})
    trees.both(**{"bench.py": "import other"})
    assert trees.run("import bench", path=(trees.project, packages)) == {}


@pytest.mark.parametrize(
    ("installed", "source", "module"),
    [
        ("dist-packages/pkg/__init__.py", "src/pkg/__init__.py", "pkg"),
        ("site-packages/mine.py", "mine.py", "mine"),
        ("site-packages/space/mine.py", "lib/space/mine.py", "space.mine"),
        (f"site-packages/_codecs_kr{SUFFIX}", "src/_codecs_kr.py", "_codecs_kr"),
    ],
)
def test_base_that_loads_an_installed_copy(
    trees: Trees, tmp_path: Path, compiled: Path, installed: str, source: str, module: str
) -> None:
    place = tmp_path / "env" / installed
    write(tmp_path / "env", {installed: ""})
    if place.suffix == ".so":
        shutil.copy2(compiled, place)
    trees.both(source, **{"bench.py": f"import {module}"})
    (trees.project / source).unlink()  # else the finder leads to the checkout
    packages = tmp_path / "env" / Path(installed).parts[0]
    before = f"sys.path[:0] = [{str(packages)!r}, project]"
    code, problem = trees.run("import bench", before)["error"]
    assert code == "E_SAME_CODE"
    assert f"{module} is imported from {place}" in problem
    (trees.checkout / source).unlink()
    assert trees.run("import bench", before) == {}


def test_loader_that_cannot_be_moved(trees: Trees) -> None:
    trees.both("odd.py")
    code, problem = trees.side("odd", finder(ODD))
    assert (code, "loaded by Finder" in problem) == ("E_WRONG_SIDE", True)


@pytest.mark.parametrize("prefix", [False, True])
def test_each_side_has_its_own_byte_code(trees: Trees, tmp_path: Path, prefix: bool) -> None:
    # Byte code is trusted by its source's time and size.
    for tree, text in ((trees.project, "side = 'project' "), (trees.checkout, "side = 'checkout'")):
        write(tree, {"mine.py": text})
        os.utime(tree / "mine.py", (1_000_000_000, 1_000_000_000))
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    if prefix:
        env["PYTHONPYCACHEPREFIX"] = str(tmp_path / "cache")
    show = "import mine; found.update(side=mine.side, at=mine.__cached__)"
    one = trees.run(show, path=(trees.project,), env=env, checkout=trees.project)
    for _ in range(2):
        other = trees.run(show, path=(trees.project,), env=env)
        assert (one["side"], other["side"]) == ("project", "checkout")
    assert one["at"] != other["at"]
    assert Path(one["at"]).exists()
    assert Path(other["at"]).exists()


def test_links_to_the_project(trees: Trees, tmp_path: Path) -> None:
    trees.both("src/pkg.py")
    link, inner = tmp_path / "alias", tmp_path / "inner"
    link.symlink_to(trees.project)
    inner.symlink_to(trees.project / "src")
    assert trees.side("pkg", path=(link / "src",)) == "checkout"
    assert trees.side("pkg", path=(trees.project / "src",), project=link) == "checkout"
    assert trees.side("pkg", path=(inner,)) == "checkout"


def test_checkout_inside_the_project_and_the_same_tree_twice(trees: Trees) -> None:
    inside, project = trees.project / "tmp/flamegate-x/base", trees.project
    write(project, {"pkg.py": "side = 'project'"})
    write(inside, {"pkg.py": "side = 'checkout'"})
    assert trees.side("pkg", path=(project,), checkout=inside) == "checkout"
    assert trees.side("pkg", path=(inside,), project=inside, checkout=project) == "project"
    assert trees.side("pkg", "import pkg", (project,), checkout=project) == "project"
