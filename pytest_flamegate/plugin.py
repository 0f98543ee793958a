"""The plugin that pytest always loads: options, marker and the skip of gate tests.

It imports nothing heavy. Only ``--flamegate`` registers the plugin that gates, ``Gatekeeper``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.options import (
    HOSTED,
    MARKER,
    OPTIONS,
    embedded_arguments,
    is_enabled,
    is_kernel_benchmark,
    is_marked,
    takes_fixture,
)

OFF = "needs --flamegate"
_SURROUNDINGS = ("flamegate_ci", "flamegate_base")
"""The options that ``_read_surroundings`` stores."""
_INI_TYPES: dict[str, Any] = {"flag": "bool", "text": "string", "number": "float"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every option, for the command line, the ini file or both."""
    group = parser.getgroup("flamegate", "performance gate for LLM inference")
    for option in OPTIONS:
        if option.cli:
            group.addoption(option.flag, **option.arguments)
        if option.ini:
            text = option.help.replace("%%", "%")  # which argparse wants doubled
            parser.addini(option.ini_name, text, _INI_TYPES[option.kind], option.default)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Load no ``test*/conftest.py`` if the arguments select embedded workloads alone.

    ``embedded`` is no path. pytest would fall back to the conftest files of the current
    directory and of its ``test*`` directories, and one that is slow or fails to import would
    break a run that collects nothing from there. Those of the current directory and above are
    loaded as usual.
    """
    _read_surroundings(early_config)
    options = early_config.known_args_namespace
    arguments = list(options.file_or_dir)
    directory = early_config.invocation_params.dir
    if not arguments or embedded_arguments(arguments, directory) != arguments:
        return (yield)
    # pytest looks into ``test*`` only beside a directory, so it is given a file.
    near = (path / "conftest.py" for path in (directory, *directory.parents))
    options.file_or_dir = [str(next((path for path in near if path.is_file()), Path(__file__)))]
    try:
        return (yield)
    finally:
        options.file_or_dir = arguments


def _read_surroundings(config: pytest.Config) -> None:
    """Find the commit to compare with, and whether this is CI, before a conftest or a test runs.

    Either may move a branch, or unset a variable. Both facts are stored among the options. A
    worker of pytest-xdist starts later, and gets those of its controller.
    """
    options = config.known_args_namespace
    rev = options.flamegate_against
    if rev is None:
        rev = config.getini("flamegate_against")
    is_known = hasattr(config.option, "flamegate_ci")
    if is_known or config.pluginmanager.has_plugin(HOSTED):
        return
    with suppress(ValueError, pytest.UsageError):  # a bad value is reported later
        if options.flamegate or config.getini("flamegate"):
            from pytest_flamegate.config.settings import is_ci
            from pytest_flamegate.core import git

            config.option.flamegate_ci = is_ci()
            config.option.flamegate_base = rev and git.resolve(config.rootpath, rev)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send both facts to a worker of pytest-xdist, which gets no options; None is not known."""
    facts = {name: getattr(node.config.option, name, None) for name in _SURROUNDINGS}
    node.workerinput.update(facts)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take the facts that the controller has sent, in a worker of pytest-xdist."""
    sent = getattr(config, "workerinput", {})
    for name in _SURROUNDINGS:
        if name in sent:
            setattr(config.option, name, sent[name])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and with ``--flamegate`` the gatekeeper.

    Raises ``pytest.UsageError`` for an option that does nothing without ``--flamegate``.
    """
    config.addinivalue_line(
        "markers",
        "flamegate(workload, tokens_per_second, hotspots, bricks, counts, throughput, elements, "
        "bytes, flops): gate this test's inference workload, or what it benchmarks; thresholds "
        "like '5%' and {'rms_norm': '3pp'}",
    )
    if config.pluginmanager.has_plugin(HOSTED):
        return  # this very process is being measured
    if is_enabled(config):
        from pytest_flamegate.pytest_.gatekeeper import Gatekeeper

        config.pluginmanager.register(Gatekeeper(config), "flamegate-gatekeeper")
        return
    for name in ("update", "update-in-ci", "inject", "against", "report", "bricks"):
        if config.getoption(f"--flamegate-{name}"):
            raise pytest.UsageError(
                f"E_BAD_OPTION: --flamegate-{name} does nothing without --flamegate. "
                "Say --flamegate as well."
            )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that uses the fixture, so that ``-m flamegate`` selects it."""
    if takes_fixture(item) and not is_marked(item):
        item.add_marker(MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip gate tests if nothing is gated; a benchmark still runs."""
    if is_kernel_benchmark(item):
        return
    if is_marked(item) and not item.config.pluginmanager.has_plugin("flamegate-gatekeeper"):
        pytest.skip(OFF)


@pytest.fixture
def flamegate(request: pytest.FixtureRequest) -> Any:
    """Measure a workload and gate it: ``flamegate.run(name)``, ``flamegate.measure(callable)``.

    Both return the receipt, and fail the test on a verdict that fails.
    """
    gatekeeper = request.config.pluginmanager.get_plugin("flamegate-gatekeeper")
    if gatekeeper is None:
        pytest.skip(OFF)
    return gatekeeper.gate_for(request.node)
