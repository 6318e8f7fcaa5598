"""The lab in a real browser: runs, forks, counterexamples, addresses, lessons, a live group; sentences for what is wrong."""

from __future__ import annotations

import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from labs import LAB, PROGRAM, Lab
from processes import members


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """A page, and at the end: nothing is in its console that should not be."""
    # Playwright's waiting for an expression is an eval, which the page's own policy forbids.
    made = browser.new_page(viewport={"width": 1280, "height": 1000}, bypass_csp=True)
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    # A question that is refused is an answer with a sentence; the browser writes its status down, too.
    made.on(
        "console",
        lambda said: (
            wrong.append(said.text) if said.type == "error" and "Failed to load resource" not in said.text else None
        ),
    )
    yield made
    made.close()
    assert wrong == []


def opened(page: Page, where: str) -> None:
    page.goto("about:blank")
    page.goto(where)
    page.wait_for_function("window.lab && window.lab.ready")


def shows(page: Page, where: str, words: str) -> None:
    """What is shown is drawn a moment after it is so: wait for it, not long."""
    expect(page.locator(where)).to_contain_text(words, use_inner_text=True, timeout=30_000)


def seen(page: Page) -> Any:
    """Everything that a person sees of a step, once what has been asked for is drawn."""
    page.wait_for_function("window.lab.S.state === null || window.lab.S.state.frame === window.lab.S.frame")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    return page.evaluate(
        "[window.lab.S.frame, document.getElementById('states').innerText, document.getElementById('flight').innerText, "
        "document.getElementById('where').textContent]"
    )


def settled(page: Page) -> Any:
    before = None
    for _ in range(60):
        page.wait_for_timeout(80)
        now = seen(page)
        if now == before:
            return now
        before = now
    return before


def test_a_run_plays_to_its_end(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=1&seed=1")
    page.select_option("#speed", "16")
    page.keyboard.press(" ")
    page.wait_for_function("window.lab.S.frame === window.lab.S.run.last && !window.lab.S.playing")
    shows(page, "#ran", "Nothing is left to do")
    page.wait_for_function(
        "document.getElementById('counters').innerText.replace('\\t', '\\n').includes('entries\\n3')"
    )


def test_steps_back_to_exactly_what_was_there(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=2&seed=4")
    there = []
    for _ in range(12):
        there.append(settled(page))
        page.keyboard.press("ArrowRight")
    settled(page)
    for before in reversed(there):
        page.keyboard.press("ArrowLeft")
        assert settled(page) == before


def test_a_message_chosen_by_hand_and_a_fork(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=1&seed=1&at=4")
    settled(page)
    first = page.evaluate("JSON.stringify(window.lab.S.run.frames.slice(5))")
    page.locator("#flight li", has_text="2 → 1").get_by_text("now").click()
    page.wait_for_function("window.lab.S.frame === 5")
    assert page.evaluate("JSON.stringify(window.lab.S.run.frames.slice(5))") != first, "the other request was first"
    assert "arrives at 1" in page.evaluate("window.lab.S.run.words(5)")
    page.keyboard.press("End")
    page.locator("#states tr", has_text="idle").first.get_by_text("request").click()
    page.wait_for_function("window.lab.S.run.plan.acts.length === 2")
    page.keyboard.press("Home")
    settled(page)
    page.keyboard.press("ArrowRight")
    settled(page)
    page.locator("#states tr").nth(2).get_by_text("crash").click()
    page.wait_for_function("window.lab.S.run.plan.acts.length === 1 && window.lab.S.acts[0].verb === 'crash'")
    shows(page, "#message", "forked")


def test_a_click_on_a_message_asks_what_to_do_with_it(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=1&seed=1&at=4")
    settled(page)
    for canvas, where in (
        ("#network", "(() => { const [x, y, m] = lab.hits.messages[1]; return [x, y, m.id] })()"),
        (
            "#diagram-a",
            "(() => { const [a, b, c, d, m] = lab.hits.arrows[1]; return [(a + c) / 2, (b + d) / 2, m.id] })()",
        ),
    ):
        x, y, number = page.evaluate(where)
        page.click(canvas, position={"x": x, "y": y})
        assert page.locator("#menu button").all_inner_texts() == ["now", "later", "lose"]
        shows(page, "#menu b", "REQUEST")
        page.keyboard.press("Escape")
        expect(page.locator("#menu")).to_be_hidden()
        page.click(canvas, position={"x": x, "y": y})
        page.locator("#menu button", has_text="now").click()
        page.wait_for_function("window.lab.S.run.plan.acts.length > 0")
        assert page.evaluate("lab.S.acts.at(-1).verb + lab.S.acts.at(-1).what") == f"deliver{number}"
        settled(page)
        page.keyboard.press("ArrowLeft")
        settled(page)
    x, y, node = page.evaluate("lab.hits.nodes[0]")
    page.click("#network", position={"x": x, "y": y})
    assert page.locator("#menu button").all_inner_texts()[-1] == "crash", "no message is so near to a node"
    shows(page, "#menu b", f"node {node}")


def test_a_message_is_lost_where_the_run_survives_it_or_all_the_same(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=1&at=4")
    settled(page)
    page.locator("#flight button", has_text="lose").first.click()
    page.wait_for_selector("#message:not([hidden])")
    shows(page, "#message", "this run would not survive it")
    shows(page, "#message", "in vain")
    assert page.evaluate("lab.S.acts.length") == 0
    page.get_by_text("lose it all the same").click()
    page.wait_for_function("lab.S.run.plan.acts.length === 1")
    page.keyboard.press("End")
    shows(page, "#ran", "in vain")
    opened(page, lab.address + "#algorithm=ricart-agrawala-failures&nodes=3&entries=1&seed=1&at=4")
    settled(page)
    page.locator("#flight button", has_text="lose").first.click()
    page.wait_for_function("lab.S.run.plan.acts.length === 1 && lab.S.acts[0].verb === 'lose'")
    page.keyboard.press("End")
    shows(page, "#ran", "Nothing is left to do.")


def test_a_node_dies_and_starts_again(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=4&seed=3&at=9")
    settled(page)
    page.locator("#states tr").nth(1).get_by_text("crash").click()
    page.wait_for_function("lab.S.run.plan.acts.length === 1 && lab.S.state.frame === lab.S.frame")
    page.locator("#states tr").nth(1).get_by_text("restart").click()
    page.wait_for_function("lab.S.run.plan.acts.length === 2")
    settled(page)
    shows(page, "#ran", "node 1 starts again, with nothing remembered")
    assert "acts=10.crash.1,11.restart.1" in page.evaluate("location.href")


def test_the_procedure_that_ran_is_shown(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&at=5")
    settled(page)
    shown = page.inner_text("#procedure")
    assert "At node 1" in shown
    assert "Reply at once if the requesting node has priority" in shown
    assert "self.deferred |= {j}" in shown
    assert "def on_reply" not in shown
    assert "node 1 asks" not in page.inner_text("#flight"), "it waits already"


def test_the_checker_knows_what_is_under_way_and_who_is_stopped(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=1&seed=1&acts=4.crash.1&at=4")
    page.keyboard.press("c")
    page.wait_for_selector("#verdict .bad")
    page.get_by_text("open the counterexample").click()
    page.wait_for_function("lab.S.run.fixed && lab.S.run.flight(0).length > 0")
    shared = page.evaluate("location.href")
    assert "check=yes" in shared
    opened(page, shared)
    page.wait_for_function("lab.S.run.fixed && lab.S.run.flight(0).length > 0")
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&acts=13.crash.1&at=13")
    page.keyboard.press("c")
    page.get_by_text("open the counterexample").click()
    page.wait_for_function("lab.S.run.fixed && lab.S.run.last === 0")
    opened(page, lab.address + "#algorithm=suzuki-kasami-a&nodes=3&entries=1&seed=1&acts=5.pause.1&at=5")
    settled(page)
    expect(page.locator("#states tr").nth(1)).to_contain_text("stopped")
    page.keyboard.press("c")
    page.wait_for_selector("#message:not([hidden])")
    shows(page, "#message", "Node 1 is stopped")


def test_with_order_what_is_late_holds_up_what_follows(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=3&seed=1&fifo=yes&acts=14.delay.14")
    arrived = page.evaluate("lab.S.run.messages.filter(m => m.from === 1 && m.to === 2).map(m => [m.f1, m.id])")
    assert [number for _, number in sorted(arrived)] == [number for _, number in arrived]


def test_every_message_is_counted_at_once(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&at=3")
    settled(page)
    shows(page, "#flight-count", "6 messages under way")
    assert page.inner_text("#counters").split()[:2] == ["messages", "6"]


def test_what_is_done_is_a_step_of_its_own(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#lesson=3&step=6")
    settled(page)
    page.locator("#states tr").nth(3).get_by_text("request").click()
    page.wait_for_function("lab.S.run.plan.acts.length === 1")
    settled(page)
    expect(page.locator("#ran")).to_have_text("node 3 asks; node 3 enters")
    expect(page.locator("#states tr").nth(3)).to_contain_text("inside")
    assert "lesson" not in page.evaluate("location.hash"), "what was done in a lesson is in the address"
    assert "acts=7.request.3" in page.evaluate("location.hash")


def test_a_run_that_fails_changes_nothing(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&at=4")
    settled(page)
    page.fill("#delay", "uniform:x")
    page.click("#start")
    page.wait_for_selector("#message:not([hidden])")
    page.locator("#forward").click()
    settled(page)
    assert page.evaluate("lab.S.state.frame") == 5
    assert "uniform:x" not in page.evaluate("location.hash")
    page.click("#check")
    page.wait_for_selector("#verdict .good")
    page.fill("#delay", "uniform:0.5,1.5")
    page.select_option("#algorithm", "suzuki-kasami-a")
    page.click("#start")
    page.wait_for_function("lab.S.run.about.algorithm === 'suzuki-kasami-a'")
    expect(page.locator("#verdict"), "a verdict is of one run").to_have_text("")


def test_what_can_happen_next(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&load=nodes:1&at=1")
    settled(page)
    steps = page.locator("#flight li span").all_inner_texts()
    assert steps == ["1 → 2 REQUEST 1", "1 → 3 REQUEST 1", "node 2 asks to enter", "node 3 asks to enter"]
    page.locator("#flight li", has_text="node 3 asks").get_by_text("now").click()
    page.wait_for_function("lab.S.run.plan.acts.length === 1")
    settled(page)
    shows(page, "#ran", "node 3 asks")


def test_every_export_of_a_run(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&at=5")
    settled(page)
    found = {}
    for each in ("svg", "trace", "shiviz", "itf"):
        with page.expect_download() as waiting:
            page.click(f"[data-export={each}]")
        found[each] = Path(waiting.value.path()).read_text()
    assert found["svg"].startswith("<svg")
    assert found["trace"].startswith('{"event":"run"')
    assert "REQUEST" in found["shiviz"]
    states = json.loads(found["itf"])["states"]
    assert len(states) == page.evaluate("lab.S.run.frames.length")
    assert states[5]["nodes"]["#map"][0][1]["deferred"] == "{2}"
    assert len(states[5]["messages"]) == page.evaluate("lab.S.run.flight(5).length")


def test_what_is_not_possible_says_why(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=1&at=2&acts=2.resume.1")
    shows(page, "#message", "Node 1 is not stopped")
    assert page.evaluate("window.lab.S.acts.length") == 0
    opened(page, lab.address + "#algorithm=dijkstra-ring&nodes=2&entries=1&seed=1&acts=1.release.2")
    shows(page, "#message", "only one that is inside can leave")


def test_the_checker_from_here_and_its_counterexample(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-b&as_printed=yes&nodes=2&entries=4&seed=1")
    page.keyboard.press("c")
    page.get_by_text("open the counterexample").click()
    page.wait_for_function("window.lab.S.run.fixed")
    page.keyboard.press("End")
    assert page.evaluate("window.lab.S.run.last") == 18
    expect(page.locator("#itf")).to_be_enabled()
    expect(page.locator("#states tr"), "its variables are shown, too").to_have_count(3)
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=1&at=5")
    page.click("#check")
    page.wait_for_selector("#verdict .good")
    shows(page, "#verdict", "all of them good")


def colour(page: Page, where: str, what: str) -> Any:
    return page.evaluate(f"getComputedStyle(document.querySelector({where!r}))[{what!r}]")


def test_a_deadlock_is_named_in_the_colour_of_what_is_wrong(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=suzuki-kasami-b&as_printed=yes&nodes=2&entries=4&seed=1")
    page.keyboard.press("c")
    page.wait_for_selector("#verdict .bad")
    expect(page.locator("#verdict .bad")).to_have_text("Deadlock found, 18 steps from step 0. ")
    page.get_by_text("open the counterexample").click()
    expect(page.locator("#message")).to_have_text("Deadlock found. This is the shortest way to it from step 0.")
    wrong = colour(page, "#verdict .bad", "color")
    assert colour(page, "#message", "borderLeftColor") == wrong
    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=3&entries=1&seed=3&acts=13.crash.1&at=13")
    page.keyboard.press("c")
    page.wait_for_selector("#verdict .bad")
    expect(page.locator("#verdict .bad")).to_have_text("Deadlock found at step 13. ")


def test_a_counterexample_of_the_command_line_is_shown_as_one(page: Page) -> None:
    words = ("check", "suzuki-kasami-b", "-n", "2", "--entries", "4", "--as-printed", "--open")
    shown = Lab(command=words, env={"BROWSER": "true"})
    try:
        opened(page, shown.address)
        expect(page.locator("#message")).to_have_text("suzuki-kasami-b as printed, 2 nodes: deadlock found.")
        expect(page.locator("#message")).to_have_class("bad")
        assert page.evaluate("lab.S.run.last") == 18
        page.reload()
        page.wait_for_function("lab.ready && lab.S.run.fixed")
    finally:
        shown.end()


def test_a_search_that_did_not_finish_is_no_good_news(lab: Lab, page: Page) -> None:
    def cut_short(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "finished": False})

    opened(page, lab.address + "#algorithm=ricart-agrawala&nodes=2&entries=1&seed=1")
    page.route("**/api/check", cut_short)
    page.keyboard.press("c")
    shows(page, "#verdict", "there are more")
    assert page.locator("#verdict .good").count() == 0
    assert page.locator("#verdict .unfinished").count() == 1


def test_a_shared_address_is_the_run(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#algorithm=carvalho-roucairol&nodes=4&entries=2&seed=9&at=6")
    settled(page)
    page.keyboard.press("d")
    page.wait_for_function("window.lab.S.run.plan.acts.length === 1")
    page.keyboard.press("ArrowRight")
    here = settled(page)
    frames = page.evaluate("JSON.stringify(window.lab.S.run.frames)")
    address = page.evaluate("location.href")
    assert "acts=7.deliver." in address
    opened(page, address)
    assert settled(page) == here
    assert page.evaluate("JSON.stringify(window.lab.S.run.frames)") == frames


def test_every_lesson_runs_to_its_end(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#view=lessons")
    count = page.locator("#lesson-list button").count()
    assert count == 5
    for at in range(count):
        opened(page, f"{lab.address}#lesson={at}&step=0")
        steps = int(page.inner_text("#lesson-step").split(" of ")[1])
        assert steps >= 10
        for step in range(steps):
            page.wait_for_function(f"window.lab.S.step === {step} && window.lab.S.run")
            assert page.locator("#message").is_hidden(), page.inner_text("#message")
            assert page.inner_text("#lesson-words")
            if page.evaluate("lab.LESSONS[lab.S.lesson].steps[lab.S.step].check"):
                page.wait_for_selector("#verdict .good, #verdict .bad")
                printed = page.is_checked("#as_printed")
                assert page.locator("#verdict .bad").count() == printed, "what the words say is what the checker finds"
                if printed:
                    page.uncheck("#as_printed")
                    page.click("#start")
                    page.wait_for_function("!lab.S.run.plan?.experiment.as_printed && lab.S.frame === 0")
                    page.click("#check")
                    page.wait_for_selector("#verdict .good", timeout=60_000)
            if step < steps - 1:
                page.click("#lesson-next")
                page.wait_for_function(f"document.getElementById('lesson-step').textContent.startsWith('{step + 2} ')")
                page.wait_for_timeout(60)


def test_side_by_side(lab: Lab, page: Page) -> None:
    opened(page, lab.address + "#view=pair&algorithm=ricart-agrawala&nodes=4&entries=1&seed=2&beside=dijkstra-ring")
    shows(page, "#title-b", "dijkstra-ring")
    page.keyboard.press("End")
    assert page.evaluate("window.lab.S.other.frames.length") > 5


def test_a_live_group_shows_the_right_holder(page: Page, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with members(tmp_path, "anna", "ben", "cleo") as (anna, ben, _):
        shown = Lab("--group", "g", "--dir", str(tmp_path))
        try:
            opened(page, shown.address)
            page.wait_for_function("document.querySelectorAll('#live-members li').length === 3")
            fence = anna.ask("acquire", "orders")["fence"]
            page.wait_for_function("document.getElementById('live-locks').innerText.includes('anna')")
            shows(page, "#live-locks", str(fence))
            shows(page, "#live-counters", "grants")
            ben.tell("acquire", "orders")
            page.wait_for_function("document.getElementById('live-locks').innerText.includes('ben')")
            anna.ask("release", "orders")
            assert ben.answer()["fence"] > fence
            page.wait_for_function("/ben .*has orders, fence/.test(document.getElementById('live-log').innerText)")
            ben.kill(signal.SIGSTOP)
            page.wait_for_function("/ben .*: no answer/.test(document.getElementById('live-locks').innerText)")
            assert "ben has orders no more" not in page.inner_text("#live-log")
            ben.kill(signal.SIGCONT)
            page.wait_for_function("!document.getElementById('live-locks').innerText.includes('no answer')")
        finally:
            shown.end()
        page.wait_for_function("document.getElementById('live-state').textContent.includes('does not answer')")
        shows(page, "#live-state", "What is below was so at")


def test_sentences_instead_of_an_empty_screen(lab: Lab, page: Page, tmp_path: Path) -> None:
    for where, sentence in (
        ("#algorithm=ricart-agrawalla", "Did you mean ricart-agrawala"),
        ("#algorithm=ricart-agrawala&nodes=many", "nodes must be a whole number, not many."),
        ("#algorithm=ricart-agrawala&colour=red", "which means nothing here"),
        ("#algorithm=ricart-agrawala&acts=1.eat.2", "nothing that can be done"),
        ("#algorithm=dijkstra-ring&topology=star&nodes=5", "needs a ring"),
        ("#lesson=77", "There is no lesson 77."),
        ("#view=upside-down", "There is no view"),
        ("#algorithm=ricart-agrawala&nodes=100000", "More than 1,000 nodes are too many to watch"),
    ):
        opened(page, lab.address + where)
        page.wait_for_selector("#message:not([hidden])")
        shows(page, "#message", sentence)
    opened(page, lab.address)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("this is no trace\n")
    page.set_input_files("#file", broken)
    page.wait_for_selector("#message:not([hidden])")
    shows(page, "#message", "the file is not a trace: line 1")
    broken.write_text(
        '{"event":"run","about":{"algorithm":"x","nodes":2,"format":1}}\n'
        '{"event":"sent","t":1.0,"id":1,"node":1,"to":-7,"kind":"REQUEST","fields":{},"bytes":3}\n'
    )
    page.set_input_files("#file", broken)
    page.wait_for_function("document.getElementById('message').textContent.includes('a node -7')")
    dead = Lab()
    opened(page, dead.address)
    dead.end()
    page.keyboard.press("c")
    page.wait_for_function("document.getElementById('message').textContent.includes('does not answer')")


def test_a_trace_file_opens(lab: Lab, page: Page, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    subprocess.run(
        [*PROGRAM, "sim", "suzuki-kasami-a", "-n", "3", "--entries", "2", "--trace", str(trace)],
        check=True,
        capture_output=True,
    )
    for command in (("diagram", str(trace), "--open"), (*LAB, "--trace", str(trace))):
        shown = Lab(command=command, env={"BROWSER": "true"})
        try:
            opened(page, shown.address)
            expect(page.locator("#message")).to_have_text("As it was recorded.")
            assert page.evaluate("window.lab.S.run.fixed")
        finally:
            shown.end()
    opened(page, lab.address)
    page.set_input_files("#file", trace)
    page.wait_for_function("window.lab.S.run.fixed")
    page.keyboard.press("End")
    assert page.evaluate("window.lab.S.run.messages.length") > 0


def test_elsewhere_than_on_loopback_a_token_is_needed(browser: Any) -> None:
    made = Lab("--host", "0.0.0.0")
    try:
        assert "0.0.0.0" not in made.address, "that is nobody's address"
        address = re.sub("//[^:/]+:", "//127.0.0.1:", made.address)
        assert "?token=" in address
        page = browser.new_page(bypass_csp=True)
        opened(page, address)
        page.wait_for_function("window.lab.S.run")
        answer = page.request.get(address.partition("?")[0] + "api/about", headers={"x-token": "guessed"})
        assert answer.status == 403
        assert "A token is needed" in answer.text()
        page.close()
    finally:
        made.end()


def test_the_page_keeps_its_own_policy(lab: Lab, browser: Any) -> None:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto(lab.address)
    page.wait_for_selector("#states tr")
    page.click("#png")
    assert wrong == []
    page.close()


class Code:
    """A file with an algorithm, and whether it has been run."""

    def __init__(self, folder: Path, name: str = "own") -> None:
        self.file, self.ran = folder / f"{name}.py", folder / f"{name}-ran"
        self.file.write_text(
            f"open({str(self.ran)!r}, 'w').close()\n"
            "from peerlock.algorithms.ricart_agrawala import RicartAgrawala as Mine\n"
        )

    @property
    def address(self) -> str:
        return f"#algorithm={self.file}:Mine&nodes=3"


def test_nobody_else_makes_the_lab_run_code(lab: Lab, page: Page, browser: Any, tmp_path: Path) -> None:
    """Neither in a frame of another page, nor by an address that the user follows: the page asks first."""
    code = Code(tmp_path)
    (tmp_path / "evil.html").write_text(f"<iframe src='{lab.address}{code.address}'></iframe>")
    evil = browser.new_page()
    evil.goto(f"file://{tmp_path}/evil.html")
    evil.wait_for_timeout(1500)
    evil.close()
    opened(page, lab.address + code.address)
    shows(page, "#message", f"{code.file} is Python code. Run it only if you know what it does.")
    assert not code.ran.exists()
    page.locator("#message button").click()
    page.wait_for_function("window.lab.S.run")
    assert code.ran.exists()
    elsewhere = browser.new_page(bypass_csp=True)
    opened(elsewhere, lab.address + code.address)
    elsewhere.wait_for_function("window.lab.S.run")  # the server knows, whichever browser asks
    elsewhere.close()


@pytest.mark.parametrize("form", ["{}c:Mine", "{}/:Mine", "{}/.:Mine", "{}.so:Mine"])
def test_an_address_runs_nothing_but_python_text(lab: Lab, page: Page, tmp_path: Path, form: str) -> None:
    code = Code(tmp_path)
    py_compile.compile(str(code.file), f"{code.file}c", doraise=True)
    shutil.copy(f"{code.file}c", f"{code.file}.so")
    opened(page, f"{lab.address}#algorithm={form.format(code.file)}&nodes=3")
    shows(page, "#message", "is not a Python file: give one whose name ends in .py.")
    assert page.locator("#message button").count() == 0, "nothing to agree to"
    opened(page, f"{lab.address}#view=pair&algorithm=ricart-agrawala&nodes=3&beside={form.format(code.file)}")
    shows(page, "#message", "is not a Python file")
    assert not code.ran.exists()


def test_the_algorithm_beside_is_asked_about_too(lab: Lab, page: Page, tmp_path: Path) -> None:
    first, beside = Code(tmp_path), Code(tmp_path, "beside")
    opened(page, f"{lab.address}{first.address}&view=pair&beside={beside.file}:Mine")
    shows(page, "#message", f"{first.file} is Python code")
    page.locator("#message button").click()
    shows(page, "#message", f"{beside.file} is Python code")
    assert (first.ran.exists(), beside.ran.exists()) == (True, False)
    page.locator("#message button").click()
    page.wait_for_function("window.lab.S.other")
    assert beside.ran.exists()


def test_the_form_agrees_only_to_what_the_user_wrote_into_it(lab: Lab, page: Page, tmp_path: Path) -> None:
    code, other = Code(tmp_path), Code(tmp_path, "other")
    opened(page, lab.address + code.address)
    shows(page, "#message", "Run it only if you know what it does")
    page.click("#start")
    shows(page, "#message", "Run it only if you know what it does")
    assert not code.ran.exists(), "the address has filled the form"
    page.fill("#own", f"{other.file}:Mine")
    page.click("#start")
    page.wait_for_function("window.lab.S.run")
    assert (code.ran.exists(), other.ran.exists()) == (False, True)
    page.fill("#own", f"{other.file}c:Mine")
    page.click("#start")
    shows(page, "#message", "is not a Python file")


def test_a_shared_address_opens_with_one_click_for_the_same_user(lab: Lab, browser: Any, tmp_path: Path) -> None:
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    opened(page, lab.address + "#algorithm=dijkstra-ring&nodes=3&entries=1&seed=2&at=3")
    shared = page.evaluate("location.href")
    assert lab.token not in shared, "an address that is shared gives nothing away"
    assert shared.startswith(lab.base + "#algorithm=dijkstra-ring")
    (tmp_path / "mail.html").write_text(f"<a href='{shared}' target='_blank'>look</a>")
    mail = context.new_page()
    mail.goto(f"file://{tmp_path}/mail.html")
    with context.expect_page() as waiting:
        mail.click("a")
    waiting.value.wait_for_function("window.lab && window.lab.ready && window.lab.S.run")
    assert waiting.value.evaluate("lab.S.run.about.algorithm") == "dijkstra-ring"
    waiting.value.reload()
    waiting.value.wait_for_function("window.lab && window.lab.ready && window.lab.S.run")
    context.close()


def test_without_the_token_the_page_says_where_it_is(lab: Lab, browser: Any) -> None:
    page = browser.new_page(bypass_csp=True)
    page.goto(lab.base)
    shows(page, "#message", "A token is needed: open the address that peerlock lab has printed.")
    opened(page, lab.address)
    page.goto(lab.base + "?token=wrong")
    shows(page, "body", "A token is needed: open the address that peerlock lab has printed.")
    opened(page, lab.base)
    page.wait_for_function("window.lab.S.run")  # a wrong address has not made it forget the right token
    page.close()


def test_the_token_stays_at_this_lab(lab: Lab, browser: Any) -> None:
    """A server of another user on this machine is the same site to a browser, so it would get a cookie."""
    heard: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.requestline} {self.headers}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<script>fetch('/again')</script>")

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever).start()
        page = browser.new_page(bypass_csp=True)
        opened(page, lab.address)
        page.evaluate(f"location.href = 'http://127.0.0.1:{server.server_port}/'")
        page.wait_for_url("**/")
        page.wait_for_load_state("networkidle")
        server.shutdown()
    page.close()
    assert any("/again" in words for words in heard)
    assert lab.token not in "".join(heard)


def test_open_leads_a_browser_to_the_page(page: Page, tmp_path: Path) -> None:
    started, browser = tmp_path / "started", tmp_path / "browser"
    os.mkfifo(started)
    browser.write_text(f'#!/bin/sh\necho "$1" > {started}\n')
    browser.chmod(0o755)
    shown = Lab("--open", env={"BROWSER": f"{browser} %s &"})
    try:
        page.goto(started.read_text().strip())  # waits for the browser to be started
        page.wait_for_url(shown.base + "**")
        page.wait_for_function("window.lab && window.lab.ready && window.lab.S.run")
        assert shown.token not in page.url
    finally:
        shown.end()


def test_a_hundred_nodes_and_twenty_thousand_events(lab: Lab, page: Page) -> None:
    """How long a picture takes is printed by scripts/bench_lab.py; here it has to come at all."""
    page.goto(lab.address + "#algorithm=suzuki-kasami-a&nodes=100&entries=3&seed=1")
    page.wait_for_selector("#busy:not([hidden])")  # it takes longer than a moment, and says so
    page.wait_for_function("window.lab && window.lab.ready")
    page.wait_for_selector("#busy", state="hidden")
    began = time.monotonic()
    assert page.evaluate("window.lab.S.run.last") == 19_999
    page.keyboard.press("End")
    page.wait_for_function("window.lab.S.frame === 19999")
    assert time.monotonic() - began < 60
