"""The base side builds and runs the files of the checkout, and shares untracked ones."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, ToolError
from pytest_flamegate.engines.base import Plan, Served, Streamed
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.streamed import run_program
from pytest_flamegate.observe.worktree import Checkout, move_plan, move_workload, open_checkout
from pytest_flamegate.run.checkouts import Checkouts
from tests.observe.workloads import make_workload, observer
from tests.workload.repositories import repository, write

ENGINE = """
from pathlib import Path
from pkg.words import SIDE
def generate(prompt, max_tokens):
    from pkg import late
    yield SIDE
    yield late.SIDE
    yield (Path(__file__).parent / "data.txt").read_text()
"""


def sources(side: str) -> dict[str, str]:
    return {
        "sub/bench.py": ENGINE,
        "sub/data.txt": f"data of {side}",
        "sub/pkg/__init__.py": "",
        "sub/pkg/words.py": f"SIDE = {side!r}",
        "sub/pkg/late.py": f"SIDE = 'late ' + {side!r}",
        "sub/run.sh": f"#!/bin/sh\necho {side}\n",
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A project in a monorepo: its last commit says ``base``, and its files say ``now``."""
    project = repository(tmp_path_factory.mktemp("base_side") / "proj ü", sources("base"))
    write(project, sources("now"))
    with closing(open_checkout(project, "HEAD")) as found:
        yield found


def workload(checkout: Checkout, **given: Any) -> Workload:
    directory = given.pop("directory", checkout.project / "sub")
    usual = {"source": "flamegate.toml", "target": "bench:generate"}
    return make_workload(directory, "python", **{**usual, **given})


def tokens(plan: Plan, declared: Workload) -> tuple[str, ...]:
    observer = Observer(declared, plan)
    with observer.serve() as served:
        served.block(1)
    return observer.observation().tokens


def move(plan: Plan, declared: Workload, checkout: Checkout) -> tuple[Plan, Workload]:
    moved = move_workload(declared, checkout)
    return move_plan(plan, declared, checkout), moved


def plan_error(plan: Plan, declared: Workload, checkout: Checkout) -> FlamegateError:
    with pytest.raises(FlamegateError) as caught:
        move(plan, declared, checkout)
    return caught.value


def test_each_side_yields_its_own_tokens(checkout: Checkout) -> None:
    declared = workload(checkout)
    plan = observer(declared).plan
    base_plan, base = move(plan, declared, checkout)
    assert tokens(plan, declared) == ("now", "late now", "data of now")
    assert tokens(base_plan, base) == ("base", "late base", "data of base")
    assert base.directory == checkout.root / "sub"
    assert dataclasses.replace(base, directory=declared.directory) == declared


def test_a_base_side_that_cannot_load(checkout: Checkout) -> None:
    write(checkout.project, {"sub/new.py": ENGINE})
    declared = workload(checkout, target="new:generate")
    base_plan, base = move(observer(declared).plan, declared, checkout)
    with pytest.raises(ToolError, match="E_TARGET_NOT_FOUND") as caught:
        tokens(base_plan, base)
    assert str(checkout.root) in str(caught.value)


def test_a_directory_that_the_revision_lacks(checkout: Checkout) -> None:
    write(checkout.project, {"new/bench.py": ENGINE})
    declared = workload(checkout, directory=checkout.project / "new")
    error = plan_error(observer(declared).plan, declared, checkout)
    assert error.code == "E_NOT_AT_REVISION"
    assert checkout.commit[:12] in error.problem


def test_tracked_models_are_each_sides_own_and_others_are_shared(checkout: Checkout) -> None:
    write(checkout.project, {"sub/untracked.gguf": "m"})
    tracked, untracked = checkout.project / "sub/data.txt", checkout.project / "sub/untracked.gguf"
    for model, expected in (
        (tracked, checkout.root / "sub/data.txt"),
        (untracked, untracked),
        (Path("/elsewhere/m.gguf"), Path("/elsewhere/m.gguf")),
    ):
        declared = workload(checkout, model=str(model), tokenizer=str(model))
        plan, base = move(Served({"factory": "f", "model": str(model)}), declared, checkout)
        assert isinstance(plan, Served)
        assert plan.load["model"] == base.model == base.tokenizer == str(expected)
    pattern = workload(checkout, model="*.gguf")
    assert move_workload(pattern, checkout).model == "*.gguf"


def test_paths_in_the_environment_are_mapped_as_whole_components(checkout: Checkout) -> None:
    top = checkout.project
    env = {
        "LD_LIBRARY_PATH": f"/usr/lib:{top}/build:relative:",
        "FLAGS": f"-I{top}/include",
        "PATH": f"{top}/.venv/bin",
        "SEED": "42",
        "TOP": str(top),
    }
    write(top, {".venv/pyvenv.cfg": ""})
    declared = workload(checkout, env=MappingProxyType(env))
    assert dict(move_workload(declared, checkout).env) == {
        **env,
        "LD_LIBRARY_PATH": f"/usr/lib:{checkout.root}/build:relative:",
        "TOP": str(checkout.root),
    }


def test_a_program_is_built_and_run_on_its_side(checkout: Checkout) -> None:
    binary = checkout.project / "sub/out/program"
    declared = workload(
        checkout,
        engine="command",
        target=None,
        build=("/bin/sh", "-c", "mkdir -p out; cp run.sh out/program; chmod +x out/program"),
        command=(str(binary), f"--data={checkout.project}/sub/data.txt", "--flag=x", "{prompt}"),
        token_unit="word",
    )
    build_workload(declared)
    plan = observer(declared).plan
    error = plan_error(plan, declared, checkout)
    assert error.code == "E_BASE_NOT_BUILT"
    assert str(binary) in error.problem
    build_workload(move_workload(declared, checkout))
    base_plan, base = move(plan, declared, checkout)
    assert isinstance(plan, Streamed)
    assert isinstance(base_plan, Streamed)
    assert base_plan.command_line("p", 4) == (
        str(checkout.root / "sub/out/program"),
        f"--data={checkout.root}/sub/data.txt",
        "--flag=x",
        "p",
    )
    assert run_program(plan, declared).tokens == ("now",)
    assert run_program(base_plan, base).tokens == ("base",)
    # A relative program follows the directory.
    declared = dataclasses.replace(declared, build=(), command=("sh", "run.sh"))
    base_plan, base = move(observer(declared).plan, declared, checkout)
    assert isinstance(base_plan, Streamed)
    assert base_plan.command_line("p", 4) == ("sh", "run.sh")
    assert run_program(base_plan, base).tokens == ("base",)


def test_interpreters_and_untracked_files_without_code_are_shared(checkout: Checkout) -> None:
    write(checkout.project, {".venv/pyvenv.cfg": "", "sub/untracked.gguf": "GGUF"})
    python = checkout.project / ".venv/bin/python"
    python.parent.mkdir(exist_ok=True)
    python.symlink_to(sys.executable)
    model = checkout.project / "sub/untracked.gguf"
    model.chmod(0o755)
    for argv in ((str(python), "run.py"), ("sh", f"--model={model}", str(model))):
        plan = Streamed(argv, "byte")
        assert move_plan(plan, workload(checkout), checkout) == plan


def test_a_build_is_repeated_once_another_one_may_have_replaced_its_product(
    checkout: Checkout,
) -> None:
    builds = Checkouts()
    made = checkout.root / "sub/made"
    plain, other = (
        workload(checkout, build=("sh", "-c", f"echo {side} > made; date +%N >> log"))
        for side in ("plain", "other")
    )
    for each, side in ((plain, "plain"), (plain, "plain"), (other, "other"), (plain, "plain")):
        builds.build(each, checkout)
        assert made.read_text() == f"{side}\n"
    assert len((checkout.root / "sub/log").read_text().splitlines()) == 3
