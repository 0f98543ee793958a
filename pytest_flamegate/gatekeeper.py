"""The working plugin, woken by ``--flamegate``: collects workloads, gates them, reports."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_flamegate.collection import (
    EMBEDDED,
    EmbeddedWorkloads,
    WorkloadFile,
    embedded_workloads,
)
from pytest_flamegate.errors import FlamegateError, UsageError
from pytest_flamegate.machine_lock import machine_lock
from pytest_flamegate.marker import MarkerOptions
from pytest_flamegate.progress import LineProgress, NoProgress
from pytest_flamegate.session import Session
from pytest_flamegate.settings import Settings
from pytest_flamegate.shown import Shown, append_step_summary, relative, show, workflow_commands
from pytest_flamegate.workload.declare import find_file, read_file
from pytest_flamegate.workload.spec import Workload
from pytest_flamegate.workload.thresholds import extra_work, thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from pytest_flamegate.receipt.types import Receipt
    from pytest_flamegate.session import Outcome

_SHOWN = pytest.StashKey[list[Shown]]()
_FAILED = "Failed: "
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Gatekeeper:
    """One pytest run under ``--flamegate``."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[Shown] = []
        try:
            self.settings = Settings.from_pytest(config)
            self.file = self.settings.config or find_file(config.rootpath)
            self.declared = read_file(self.file) if self.file is not None else ()
            if self.settings.inject is not None:
                extra_work(self.settings.inject)
        except FlamegateError as error:
            raise pytest.UsageError(str(error)) from None
        self.embedded_wanted = self._take_embedded_arguments()
        self._add_workload_file()

    @cached_property
    def session(self) -> Session:
        """The session that gates; made when the first workload runs."""
        interactive = sys.stdout.isatty() and not hasattr(self.config, "workerinput")
        return Session(self.settings, LineProgress(self.config) if interactive else NoProgress())

    # Collection

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> WorkloadFile | None:
        """Collect the workload file where the walk or an argument comes by it."""
        if self.file is None or not self.declared or file_path != self.file.resolve():
            return None
        collector = WorkloadFile.from_parent(parent, path=file_path)
        collector.gatekeeper = self
        return collector

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Put the embedded workloads behind everything else where nothing was declared."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self._embedded_due():
            embedded = EmbeddedWorkloads.from_parent(collector, name=EMBEDDED, nodeid=EMBEDDED)
            embedded.gatekeeper = self
            report.result.append(embedded)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse markers that would silently do nothing."""
        for item in items:
            if item.get_closest_marker("flamegate") is None:
                continue
            options = MarkerOptions.from_item(item)
            uses = "flamegate" in getattr(item, "fixturenames", ())
            if isinstance(item, pytest.Function) and not uses and options.workload is None:
                raise pytest.UsageError(
                    f"{item.nodeid}: E_MARKER: the marker names no workload and the test does "
                    'not use the fixture, so nothing would be gated. Say workload="NAME", or '
                    "take the fixture flamegate."
                )

    # Running

    def gate_for(self, item: pytest.Item) -> Gate:
        """Return the fixture's value for ``item``."""
        return Gate(self, item)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Gate the workload a marker names on a test that does not do so itself."""
        if (
            pyfuncitem.get_closest_marker("flamegate")
            and "flamegate" not in pyfuncitem.fixturenames
        ):
            self.gate_for(pyfuncitem).run()
        return (yield)

    def gate(
        self,
        item: pytest.Item,
        workload: Workload,
        call: Callable[[str, int], Iterable[Any]] | None = None,
    ) -> Outcome:
        """Measure and gate ``workload`` for ``item``; fail the test where the verdict fails."""
        __tracebackhide__ = True
        with machine_lock():
            outcome = self.session.gate(workload, call)
        shown = show(outcome, item.nodeid, self.settings)
        item.stash.setdefault(_SHOWN, []).append(shown)
        item.user_properties.append(("flamegate_verdict", outcome.verdict.verdict))
        if outcome.fails:
            pytest.fail(shown.section, pytrace=False)
        return outcome

    # Reporting

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Hand what was gated on with the report: this is what travels under xdist."""
        report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and crash.message.startswith(_FAILED):
            # The summary line begins with the verdict, not with the kind of exception.
            crash.message = crash.message.removeprefix(_FAILED)
        if report.when == "call" and (shown := item.stash.get(_SHOWN, None)):
            travels = hasattr(self.config, "workerinput")
            results = [one.as_data() if travels else one for one in shown]
            report.flamegate = results  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what was gated, from this process or from a worker."""
        for one in getattr(report, "flamegate", ()):
            self.results.append(one if isinstance(one, Shown) else Shown.from_data(one))

    def pytest_report_header(self) -> list[str]:
        """Say what measures, and where."""
        return [self.session.preamble(self.declared or embedded_workloads(self.settings.root))]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all verdicts in one table, and tell the CI service in its own words."""
        if not self.results:
            return
        from pytest_flamegate.report.terminal import summary

        writer = self.config.get_terminal_writer()
        terminalreporter.section("flamegate")
        table = summary(
            [one.row for one in self.results],
            directory=relative(self.settings.directory / "latest", self.settings.root),
            accept=self._accept_command(),
            width=writer.fullwidth,
            colour=writer.hasmarkup,
        )
        terminalreporter.write_line("\n".join(table))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in workflow_commands(self.results):
                terminalreporter.write_line(line)
            append_step_summary(self.results)

    def _accept_command(self) -> str | None:
        """Return how to accept these runs, where any of them waits for it."""
        if any(one.verdict.verdict == "no_baseline" and not one.accepted for one in self.results):
            return "pytest --flamegate --flamegate-update"
        return None

    # What to collect

    def _embedded_due(self) -> bool:
        if self.embedded_wanted is not None:
            return True
        asked = self.config.args_source is pytest.Config.ArgsSource.ARGS
        return not self.declared and not asked

    def _take_embedded_arguments(self) -> frozenset[str] | None:
        """Take ``embedded::NAME`` out of the arguments: they name no path.

        None where no argument did; an empty set means all of them.
        """
        taken = [a for a in self.config.args if a == EMBEDDED or a.startswith(f"{EMBEDDED}::")]
        if not taken or Path(self.config.invocation_params.dir, EMBEDDED).exists():
            return None
        known = {workload.name for workload in embedded_workloads(self.config.rootpath)}
        names = {argument.partition("::")[2] for argument in taken} - {""}
        if unknown := names - known:
            raise pytest.UsageError(
                f"E_UNKNOWN_WORKLOAD: there is no embedded workload {sorted(unknown)[0]!r}. "
                f"Known: {', '.join(sorted(known))}."
            )
        self.config.args[:] = [a for a in self.config.args if a not in taken]
        return frozenset(names)

    def _add_workload_file(self) -> None:
        """Collect the workload file even where ``testpaths`` lead past it."""
        if self.file is None or not self.declared:
            return
        if self.config.args_source is pytest.Config.ArgsSource.ARGS:
            return
        places = [Path(self.config.invocation_params.dir, arg) for arg in self.config.args]
        if not any(self.file.resolve().is_relative_to(place.resolve()) for place in places):
            self.config.args.append(str(self.file))


class Gate:
    """What the fixture ``flamegate`` gives a test."""

    def __init__(self, gatekeeper: Gatekeeper, item: pytest.Item) -> None:
        self._gatekeeper = gatekeeper
        self._item = item
        self._options = MarkerOptions.from_item(item)

    def run(self, workload: str | None = None) -> Receipt | None:
        """Measure and gate a declared workload; return its receipt.

        ``workload`` is its name; without one the marker's. The three embedded ones need
        no declaration. The test fails here on a verdict that fails. The receipt is None
        where profiling is off: nothing then shows a kernel.
        """
        __tracebackhide__ = True
        name = workload or self._options.workload
        found = self._find(name)
        return self._gatekeeper.gate(self._item, self._with_thresholds(found)).receipt

    def measure(
        self,
        call: Callable[[str, int], Iterable[Any]],
        *,
        prompt: str,
        max_tokens: int,
        name: str | None = None,
    ) -> Receipt | None:
        """Measure and gate ``call(prompt, max_tokens)``, which yields tokens; return its receipt.

        It runs in forked copies of this process, so that what it loaded is there and
        what it does stays there. ``name`` is the workload's name, by default made of
        the test's.
        """
        __tracebackhide__ = True
        if not callable(call) or max_tokens < 1:
            raise UsageError(
                "E_BAD_CALL",
                "measure() was given no callable, or fewer than one token to ask for.",
                "Give a callable that takes prompt and max_tokens and yields tokens.",
            )
        workload = Workload(
            name=_UNSAFE.sub("-", name or f"{self._item.path.stem}.{self._item.name}").strip("-."),
            engine="python",
            prompt=prompt,
            max_tokens=max_tokens,
            source=self._item.path.name,
            directory=self._gatekeeper.settings.root,
            target=f"{getattr(call, '__module__', '')}:{getattr(call, '__qualname__', 'call')}",
        )
        found = self._with_thresholds(workload)
        return self._gatekeeper.gate(self._item, found, call).receipt

    def _find(self, name: str | None) -> Workload:
        known = {w.name: w for w in embedded_workloads(self._gatekeeper.settings.root)}
        known.update({w.name: w for w in self._gatekeeper.declared})
        if name is None or name not in known:
            pytest.fail(
                f"E_UNKNOWN_WORKLOAD: there is no workload {name!r}. "
                f"Known: {', '.join(sorted(known))}; declare others in flamegate.toml.",
                pytrace=False,
            )
        return known[name]

    def _with_thresholds(self, workload: Workload) -> Workload:
        options = self._options
        if options.tokens_per_second is None and options.hotspots is None:
            return workload
        try:
            given = thresholds(options.tokens_per_second, options.hotspots, self._item.nodeid)
        except UsageError as error:
            pytest.fail(str(error), pytrace=False)
        own = workload.thresholds
        if options.tokens_per_second is not None:
            own = replace(own, tokens_per_second_pct=given.tokens_per_second_pct)
        if options.hotspots is not None:
            own = replace(own, hotspots_pp=given.hotspots_pp)
        return replace(workload, thresholds=own)
