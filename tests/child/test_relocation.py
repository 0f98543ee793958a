"""Imports of the base side come from its checkout, however the project is importable."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import pytest_flamegate
from pytest_flamegate.child.relocation import TreePair
from tests.workload.repositories import write

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

CHILD = """
import json, sys
from pathlib import Path
from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.child.relocation import check_side, relocate_imports
project, checkout, before, after = sys.argv[1:]
exec(before)
found = {}
try:
    relocate_imports(Path(project), Path(checkout))
    exec(after)
    check_side(Path(project), Path(checkout))
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

    def both(self, name: str, text: str = "") -> None:
        """Write one file on both sides; SIDE in it says which side it is."""
        write(self.project, {name: text.replace("SIDE", "project")})
        write(self.checkout, {name: text.replace("SIDE", "checkout")})

    def run(
        self,
        after: str,
        before: str = "",
        path: tuple[Path, ...] = (),
        env: dict[str, str] | None = None,
        project: Path | None = None,
        checkout: Path | None = None,
    ) -> dict[str, Any]:
        """Run ``after`` relocated; return the values that it puts into ``found``."""
        arguments = [str(project or self.project), str(checkout or self.checkout), before, after]
        done = subprocess.run(
            [sys.executable, "-P", "-c", CHILD, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, path)),
                "PYTHONIOENCODING": "utf-8",
                **(env or {}),
            },
            stdout=subprocess.PIPE,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
        return found


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


EDITABLE = """
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

class EditableFinder:
    mapping = {mapping}
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for name, place in cls.mapping.items():
            if fullname == name or fullname.startswith(name + "."):
                base = Path(place, *fullname.removeprefix(name).split(".")[1:])
                for file in (base / "__init__.py", *(Path(f"{{base}}{{s}}") for s in {suffixes})):
                    if file.exists():
                        return spec_from_file_location(fullname, file)
        return None

sys.meta_path.append(EditableFinder)
"""


def editable(mapping: dict[str, Path]) -> str:
    """Return code that makes these names importable the way setuptools' editable installs do."""
    places = {name: str(place) for name, place in mapping.items()}
    return EDITABLE.format(mapping=places, suffixes=[".py", SUFFIX])


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
    for file, text in files.items():
        trees.both(file, text)
    found = trees.run(code, path=tuple(trees.project / each for each in path))
    assert found == {
        key: value.replace("CHECKOUT", str(trees.checkout)) for key, value in expected.items()
    }


def test_finder_of_an_editable_install(trees: Trees) -> None:
    trees.both("lib/__init__.py", "from pkg.sub import side")
    trees.both("lib/sub.py", "side = 'SIDE'")
    trees.both("single.py", "side = 'SIDE'")
    before = editable({"pkg": trees.project / "lib", "single": trees.project / "single"})
    given = trees.run(
        "import pkg, single; found.update(one=pkg.side, two=single.side, path=list(pkg.__path__))",
        before,
    )
    assert (given["one"], given["two"]) == ("checkout", "checkout")
    assert given["path"] == [str(trees.checkout / "lib")]


NAMESPACE_FINDER = """
import sys
from importlib.machinery import ModuleSpec
class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "space":
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [sys.argv[1] + "/ns", "__editable__.placeholder"]
            return spec
sys.meta_path.append(Finder)
"""


def test_namespace_package_of_a_finder(trees: Trees) -> None:
    trees.both("ns/mine.py", "side = 'SIDE'")
    given = trees.run("import space.mine; found['side'] = space.mine.side", NAMESPACE_FINDER)
    assert given["side"] == "checkout"
    shutil.rmtree(trees.checkout / "ns")
    assert "No module named 'space'" in trees.run("import space", NAMESPACE_FINDER)["missing"]


def test_strict_editable_install(trees: Trees) -> None:
    trees.both("src/pkg/__init__.py", "from pkg.sub import side")
    trees.both("src/pkg/sub.py", "side = 'SIDE'")
    trees.both("src/space/mine.py", "side = 'SIDE'")
    links = trees.project / "build/__editable__.toy-1-py3-none-any"
    for name in ("pkg/__init__.py", "pkg/sub.py", "space/mine.py"):
        (links / name).parent.mkdir(parents=True, exist_ok=True)
        (links / name).symlink_to(trees.project / "src" / name)
    given = trees.run(
        "import pkg, space.mine; found.update(p=pkg.side, s=space.mine.side)", path=(links,)
    )
    assert given == {"p": "checkout", "s": "checkout"}
    (trees.checkout / "src/space/mine.py").unlink()
    missing = trees.run("import pkg, space.mine", path=(links,))["missing"]
    assert "not at the revision" in missing


def test_modules_of_one_side(trees: Trees) -> None:
    trees.both("src/pkg/__init__.py")
    write(trees.checkout, {"src/pkg/old.py": "side = 'old'", "src/old.py": "side = 'old'"})
    write(trees.project, {"src/pkg/new.py": "", "src/new.py": ""})
    src = trees.project / "src"
    given = trees.run("import old, pkg.old; found['side'] = old.side + pkg.old.side", path=(src,))
    assert given["side"] == "oldold"
    for name in ("new", "pkg.new"):
        assert "No module named" in trees.run(f"import {name}", path=(src,))["missing"]


def test_module_that_an_editable_install_no_longer_knows(trees: Trees) -> None:
    trees.both("src/pkg/__init__.py")
    write(trees.checkout, {"src/old.py": "side = 'old'"})
    write(trees.project, {"src/new.py": ""})
    src = trees.project / "src"
    before = editable({"pkg": src / "pkg", "new": src / "new"})
    assert trees.run("import pkg, old; found['side'] = old.side", before)["side"] == "old"
    assert "not at the revision" in trees.run("import new", before)["missing"]


def test_modules_that_became_packages(trees: Trees) -> None:
    write(trees.project, {"one/__init__.py": "side = 'project'", "two.py": "side = 'project'"})
    write(trees.checkout, {"one.py": "side = 'checkout'", "two/__init__.py": "side = 'checkout'"})
    before = editable({"one": trees.project / "one", "two": trees.project / "two"})
    given = trees.run("import one, two; found['side'] = one.side + two.side", before)
    assert given["side"] == "checkoutcheckout"


def test_project_in_the_prefix_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    sides = TreePair.from_paths(tmp_path / "src/app", tmp_path / "checkout")
    moved = sides.relocate(tmp_path / "src/app/pkg.py")
    assert moved == (tmp_path / "checkout/pkg.py").resolve()


def test_only_the_engine_of_this_package_is_moved(tmp_path: Path) -> None:
    package = Path(pytest_flamegate.__file__).resolve().parent
    sides = TreePair.from_paths(package.parent, tmp_path)
    assert sides.relocate(package / "errors.py") is None
    assert sides.relocate(package / "child/serve.py") is None
    assert sides.relocate(package / "child/embedded_not.py") is None
    assert sides.relocate(package / "child/embedded/kernels.py") == (
        tmp_path.resolve() / "pytest_flamegate/child/embedded/kernels.py"
    )


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
    trees.both("pkg/__init__.py")
    write(trees.project, {f"pkg/fast{SUFFIX}": "", f"top{SUFFIX}": ""})
    for name in ("pkg.fast", "top"):
        places = {"pkg": trees.project / "pkg", "top": trees.project / "top"}
        code = f"try: import {name}\nexcept Exception: pass" if swallow else f"import {name}"
        given = trees.run(
            f"import pkg\n{code}",
            before=editable(places) if how == "finder" else "",
            path=(trees.project,) if how == "path" else (),
        )
        code, said = given["error"]
        assert code == "E_BASE_NOT_BUILT"
        assert str(trees.project / name.replace(".", "/")) in said
        assert "build" in said


def test_source_that_the_project_runs_compiled(trees: Trees) -> None:
    trees.both("pkg/__init__.py")
    trees.both("pkg/hot.py", "side = 'SIDE'")
    write(trees.project, {f"pkg/hot{SUFFIX}": ""})
    given = trees.run("import pkg.hot", path=(trees.project,))
    assert given["error"][0] == "E_BASE_NOT_BUILT"
    (trees.project / "pkg/hot.py").unlink()
    rewritten = trees.run("import pkg.hot; found['side'] = pkg.hot.side", path=(trees.project,))
    assert rewritten == {"side": "checkout"}


def test_compiled_module_that_the_checkout_has(trees: Trees) -> None:
    trees.both("pkg/__init__.py")
    trees.both(f"pkg/fast{SUFFIX}")
    given = trees.run("import pkg.fast", path=(trees.project,))
    assert "error" not in given
    assert str(trees.checkout) in given["missing"], "the loader of the checkout's file was asked"


def test_module_imported_too_early(trees: Trees) -> None:
    trees.both("early.py", "side = 'SIDE'")
    given = trees.run("", before="import early", path=(trees.project,))
    assert given["error"][0] == "E_WRONG_SIDE"
    assert "early" in given["error"][1]


def test_module_loaded_around_the_finder(trees: Trees) -> None:
    trees.both("mine.py", "side = 'SIDE'")
    given = trees.run(
        "import mine, importlib.util as u\n"
        "s = u.spec_from_file_location('around', sys.argv[1] + '/mine.py')\n"
        "sys.modules['around'] = m = u.module_from_spec(s); s.loader.exec_module(m)",
        path=(trees.project,),
    )
    assert given["error"][0] == "E_WRONG_SIDE"
    assert "around" in given["error"][1]


def test_base_that_loads_nothing_of_the_checkout(trees: Trees) -> None:
    given = trees.run("import json.tool")
    assert given["error"][0] == "E_SAME_CODE"


def test_installed_copy_of_the_project(trees: Trees, tmp_path: Path) -> None:
    trees.both("src/pkg/__init__.py")
    trees.both("bench.py", "import pkg")
    packages = tmp_path / "env/site-packages"
    write(packages, {"pkg/__init__.py": "", "other/__init__.py": ""})
    given = trees.run("import bench", path=(trees.project, packages))
    assert given["error"][0] == "E_SAME_CODE"
    trees.both("bench.py", "import other")
    assert trees.run("import bench", path=(trees.project, packages)) == {}


ODD_LOADER = """
import sys
from importlib.machinery import ModuleSpec
class Odd:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "odd":
            return ModuleSpec(fullname, cls(), origin=sys.argv[1] + "/odd.py")
sys.meta_path.append(Odd)
"""


def test_loader_that_cannot_be_moved(trees: Trees) -> None:
    trees.both("odd.py")
    given = trees.run("import odd", before=ODD_LOADER)
    assert given["error"][0] == "E_CANNOT_RELOCATE"
    assert "Odd" in given["error"][1]


@pytest.mark.parametrize("prefix", [False, True])
def test_each_side_has_its_own_byte_code(trees: Trees, tmp_path: Path, prefix: bool) -> None:
    trees.both("mine.py", "side = 'SIDE'")
    # Byte code is trusted by its source's time and size.
    padding = len("checkout") - len("project")
    (trees.project / "mine.py").write_text("side = 'project'" + " " * padding)
    for each in (trees.project, trees.checkout):
        os.utime(each / "mine.py", (1_000_000_000, 1_000_000_000))
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    if prefix:
        env["PYTHONPYCACHEPREFIX"] = str(tmp_path / "cache")
    show = "import mine; found['side'] = mine.side; found['at'] = mine.__cached__"
    one = trees.run(show, path=(trees.project,), env=env, checkout=trees.project)
    for _ in range(2):
        other = trees.run(show, path=(trees.project,), env=env)
        assert (one["side"], other["side"]) == ("project", "checkout")
    assert one["at"] != other["at"]
    assert Path(one["at"]).exists()
    assert Path(other["at"]).exists()


def test_links_to_the_project(trees: Trees, tmp_path: Path) -> None:
    trees.both("src/pkg.py", "side = 'SIDE'")
    (tmp_path / "alias").symlink_to(trees.project)
    show = "import pkg; found['side'] = pkg.side"
    link = tmp_path / "alias"
    assert trees.run(show, path=(link / "src",)) == {"side": "checkout"}
    assert trees.run(show, path=(trees.project / "src",), project=link) == {"side": "checkout"}
    (tmp_path / "inner").symlink_to(trees.project / "src")
    assert trees.run(show, path=(tmp_path / "inner",)) == {"side": "checkout"}


def test_checkout_inside_the_project(trees: Trees) -> None:
    inside = trees.project / "tmp/flamegate-x/base"
    write(trees.project, {"pkg.py": "side = 'project'"})
    write(inside, {"pkg.py": "side = 'checkout'"})
    show = "import pkg; found['side'] = pkg.side"
    assert trees.run(show, path=(trees.project,), checkout=inside) == {"side": "checkout"}
    back = trees.run(show, path=(inside,), project=inside, checkout=trees.project)
    assert back == {"side": "project"}


def test_same_tree_twice(trees: Trees) -> None:
    trees.both("pkg.py", "side = 'SIDE'")
    given = trees.run(
        "import pkg; found['side'] = pkg.side",
        before="import pkg",
        path=(trees.project,),
        checkout=trees.project,
    )
    assert given == {"side": "project"}
