"""The working plugin, registered by ``--flamegate``: collects workloads, gates them, reports."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.options import EMBEDDED, is_kernel_benchmark, is_marked, takes_fixture
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.workload import BENCHMARK_ENGINE, Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.core.files import relative
from pytest_flamegate.core.progress import INTERRUPTED, LogProgress, Progress, TerminalProgress
from pytest_flamegate.pytest_.fixture import Gate, MarkerOptions, benchmark_of, check_marker
from pytest_flamegate.pytest_.items import (
    EmbeddedWorkloads,
    WorkloadFile,
    WorkloadItem,
    node_id,
    select_workloads,
)
from pytest_flamegate.run import present
from pytest_flamegate.run.hosts import list_properties, report_to_github
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.session import Session
from pytest_flamegate.run.stages import Call

_RESULTS = pytest.StashKey[list[present.ResultView]]()
_IS_GATED = pytest.StashKey[bool]()
_PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""What this plugin added to the properties of a test."""
_MARKER_ERROR = pytest.StashKey[str]()
_FAILED = "Failed: "


class Gatekeeper:
    """One pytest run under ``--flamegate``."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[present.ResultView] = []
        self.measured: dict[str, str] = {}
        self.report_error: FlamegateError | None = None
        self.is_measuring = False
        try:
            self.settings = Settings.from_pytest(config)
            self.selection = select_workloads(config, self.settings)
            if self.settings.report is not None and not self._is_worker:
                present.require_writable(self.settings.report)
        except FlamegateError as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def session(self) -> Session:
        """The session that gates; made when it is needed first."""
        return Session(self.settings, self._progress())

    @property
    def _is_worker(self) -> bool:
        """Whether this is an xdist worker, whose results travel to the controller."""
        return hasattr(self.config, "workerinput")

    def _progress(self) -> Progress:
        """Return a moving line on a terminal, else lines in a log or on a worker's stderr."""
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        capture: Any = self.config.pluginmanager.get_plugin("capturemanager")

        def write(text: str) -> None:
            # A worker's reporter writes nowhere.
            stream: Any = sys.stderr if self._is_worker else reporter
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                if stream is reporter:
                    # Does something only if pytest has begun a line, and so once a workload.
                    reporter.ensure_newline()
                stream.write(text)
                stream.flush()

        if reporter is None and not self._is_worker:
            return Progress()
        is_terminal = not self._is_worker and reporter.isatty
        return TerminalProgress(write) if is_terminal else LogProgress(write)

    # Collection

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> WorkloadFile | None:
        """Collect the workload file when the walk or an argument reaches it."""
        if not self.selection.is_file(file_path):
            return None
        collector = WorkloadFile.from_parent(parent, path=file_path)
        collector.gating = self
        return collector

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Put the embedded workloads after everything else, if they are collected."""
        report = yield
        is_root = isinstance(collector, pytest.Session) and report.passed
        if is_root and self.selection.takes_embedded:
            embedded = EmbeddedWorkloads.from_parent(collector, name=EMBEDDED, nodeid=EMBEDDED)
            embedded.gating = self
            report.result.append(embedded)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Raise for markers that would silently do nothing."""
        for item in items:
            try:
                check_marker(item)
            except pytest.UsageError as error:
                if not self._is_worker:
                    raise
                # A worker that exits here ends xdist with a traceback.
                item.stash[_MARKER_ERROR] = str(error)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Announce how long the run will take; raise if nothing can be measured here."""
        workloads = self._plan(session.items)
        # Every worker collects everything, and one announces it.
        worker = getattr(self.config, "workerinput", {"workerid": "gw0"})["workerid"]
        if not workloads or worker != "gw0" or self.config.getoption("collectonly"):
            return
        try:
            if not self._is_worker:
                self.session.require_possible(workloads)
        except FlamegateError as error:
            raise pytest.UsageError(str(error)) from None
        selection = self.selection
        is_default = selection.wanted is None and not selection.declarations.entries
        if is_default and any(isinstance(each, WorkloadItem) for each in session.items):
            self.session.announce_embedded(selection.file or self.settings.root)
        self.session.announce(workloads)

    def _plan(self, items: list[pytest.Item]) -> list[Workload]:
        """Return the workloads of the gate tests, each once.

        A test whose marker and code name none will measure something of its own: an embedded
        workload takes its place, with the engine of kernel benchmarks if it is one.
        """
        known = self.selection.workloads
        found: dict[str, Workload] = {}
        for item in filter(is_marked, items):
            if isinstance(item, WorkloadItem) and isinstance(item.workload, Workload):
                found[item.workload.name] = item.workload
            elif isinstance(item, pytest.Function) and _MARKER_ERROR not in item.stash:
                name = MarkerOptions.from_item(item).workload
                names = [name] if name else _names_in_code(item.function)
                # A marker may name anything, and the test fails later if it is no workload.
                texts = [each for each in names if isinstance(each, str)]
                named = {each: known[each] for each in texts if each in known}
                own = self.selection.embedded[0]
                if is_kernel_benchmark(item):
                    own = replace(own, engine=BENCHMARK_ENGINE)
                found |= named or {item.nodeid: own}
        return list(found.values())

    # Running

    def gate_for(self, item: pytest.Item) -> Gate:
        """Return the fixture's value for ``item``."""
        return Gate(self, item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test on a worker whose marker has an error."""
        item.stash[_IS_GATED] = False
        # Those of an attempt before a rerun.
        old = item.stash.get(_PROPERTIES, [])
        kept = [each for each in item.user_properties if not any(each is one for one in old)]
        item.user_properties[:] = kept
        item.stash[_PROPERTIES] = []
        if error := item.stash.get(_MARKER_ERROR, None):
            pytest.fail(error, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Gate the workload that a marker names on a test that does not take the fixture.

        A test that takes it and gates nothing fails: it would look gated and not be. A
        benchmark is gated after it has passed.
        """
        is_gate_test = isinstance(item, pytest.Function) and is_marked(item)
        is_kernel = is_gate_test and is_kernel_benchmark(item)
        if is_gate_test and not is_kernel and not takes_fixture(item):
            self.gate_for(item).run()
        result = yield
        if is_kernel:
            assert isinstance(item, pytest.Function)
            try:
                workload = benchmark_of(item, self)
            except UsageError as error:
                # Raised from None: pytest would show the error twice.
                raise pytest.fail.Exception(f"error: {error}", pytrace=False) from None
            self.gate(item, workload)
        if is_gate_test and not item.stash.get(_IS_GATED, False):
            pytest.fail(
                "E_NOTHING_GATED: the test takes the fixture flamegate and gates nothing. "
                "Call flamegate.run(NAME) or flamegate.measure(...) in it.",
                pytrace=False,
            )
        return result

    def gate(self, item: pytest.Item, workload: Workload, call: Call | None = None) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test if the verdict fails."""
        __tracebackhide__ = True
        item.stash[_IS_GATED] = True
        self.is_measuring = True
        outcome = self.session.gate(workload, call)
        self.is_measuring = False
        view = present.view_of(outcome, node_id(item), self.session.hints)
        # A measurement of a test's own may have the name of a declared workload.
        sources = {each.name: each.source for each in self.selection.declarations.workloads}
        view = replace(view, is_declared=sources.get(workload.name) == workload.source)
        item.stash.setdefault(_RESULTS, []).append(view)
        properties = list_properties(workload.name, outcome.verdict)
        item.user_properties += properties
        item.stash[_PROPERTIES] += properties
        if outcome.fails:
            pytest.fail(view.section, pytrace=False)
        return outcome

    def pytest_keyboard_interrupt(self) -> None:
        """Print what an interrupted measurement leaves; pytest names a line of ours."""
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.is_measuring and reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(INTERRUPTED)

    # Reporting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the results into the report, which travels from a worker of xdist."""
        report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and crash.message.startswith(_FAILED) and is_marked(item):
            # The summary line begins with the verdict, not with the kind of exception. Under CI
            # pytest would print the rest there a second time.
            crash.message = crash.message.removeprefix(_FAILED).partition("\n")[0]
        if views := item.stash.get(_RESULTS, None):
            # Each phase has its own: a fixture of the user's may gate in setup.
            results = [view.as_data() if self._is_worker else view for view in views]
            report.flamegate = results  # type: ignore[attr-defined]
            del item.stash[_RESULTS]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results of this process or of a worker."""
        if self._is_worker:
            return
        for one in getattr(report, "flamegate", ()):
            is_local = isinstance(one, present.ResultView)
            self.results.append(one if is_local else present.ResultView.from_data(one))

    def pytest_report_header(self) -> list[str]:
        """Name the profilers and the machine."""
        if self.config.getoption("collectonly"):
            return []
        declared = self.selection.declarations.workloads
        return [self.session.preamble(declared or self.selection.embedded)]

    def _write_report(self, path: Path, session: pytest.Session) -> None:
        """Write the report; the run fails if it cannot be written."""
        try:
            reported = present.report_results(self.results, self.settings)
            present.write_report(path, reported, self.settings)
        except FlamegateError as error:
            self.report_error = error
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Write the report, and fail a run that only looks as if everything was gated."""
        if self._is_worker:
            return (yield)
        if self.settings.report is not None and not self.config.getoption("collectonly"):
            self._write_report(self.settings.report, session)
        result = yield
        careless = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
        if session.exitstatus in careless and (problem := self._find_false_green()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(problem, red=True)
        return result

    def _find_false_green(self) -> str | None:
        """Return why a run that would pass must not."""
        last = {(one.node, one.report.name): one for one in self.results}
        # A test may be run again, and an open question settled; what was certain stays.
        hidden = [
            one for one in self.results if one.is_certain or one is last[one.node, one.report.name]
        ]
        if swallowed := dict.fromkeys(one.node for one in hidden if one.fails):
            return (
                f"E_VERDICT_SWALLOWED: the verdict of {', '.join(swallowed)} fails, and its test "
                "did not. Let flamegate.run raise, without except, xfail or a hook; a rerun "
                "does not take a verdict back."
            )
        names = [each.name for each in self.selection.declarations.entries]
        is_asked = self.settings.ci or self.settings.against is not None
        if is_asked and names and not any(one.is_declared for one in self.results):
            return (
                f"E_NOTHING_GATED: --flamegate judged none of the declared workloads "
                f"({', '.join(names)}). Do not deselect or skip them. A run that gates tests alone "
                "takes a workload file of its own, which may be empty: --flamegate-config=PATH."
            )
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all verdicts in one table, and in the form that the CI service reads."""
        if self.report_error is not None:
            terminalreporter.write_line(f"no report was written: {self.report_error}", red=True)
        if not self.results:
            return
        writer = self.config.get_terminal_writer()
        terminalreporter.section("flamegate")
        option = self.config.option
        nodes: Sequence[str] = self.selection.arguments
        if option.keyword or option.markexpr or option.deselect:
            nodes = [one.node for one in self.results if one.waits]
        lines = present.summary_lines(
            self.results,
            self.session.hints,
            nodes,
            width=writer.fullwidth,
            colour=writer.hasmarkup,
        )
        terminalreporter.write_line("\n".join(lines))
        if self.settings.report is not None and self.report_error is None:
            report = relative(self.settings.report, self.settings.root)
            terminalreporter.write_line(f"report: {report}")
        for line in report_to_github(self.results):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Remove the checkouts, after an interrupt too."""
        if "session" not in self.__dict__:
            return
        try:
            self.session.close()
        except FlamegateError as error:
            # The verdicts are valid; the next comparison removes the rest.
            print(f"flamegate: {error}", file=sys.stderr)  # noqa: T201


def _names_in_code(function: Any) -> list[str]:
    """Return the names in calls of ``flamegate.run("name")`` in the source of a test."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):  # a test may be a callable object
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    runs = [call for call in calls if ast.unparse(call.func) == "flamegate.run"]
    values = [each for call in runs for each in (*call.args, *(key.value for key in call.keywords))]
    return [each.value for each in values if isinstance(each, ast.Constant)]  # type: ignore[misc]
