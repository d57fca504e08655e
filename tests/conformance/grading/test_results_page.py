"""The page of results in a real browser, with ten thousand submissions, hostile names among them."""

from __future__ import annotations

import os
import shutil

import pytest

from conformance.grading.page import to_page
from conformance.grading.rubric import default
from conformance.grading.store import Store
from conformance.grading.submissions import Submission
from conformance.verdict import Result, Verdict

pytestmark = [pytest.mark.browser, pytest.mark.deep]
MANY = 10_000
HOSTILE = "</script><img src=x onerror=alert(1)>"
CLAIMS = ("attention-scale-is-one-over-sqrt-d-head", "multi-head-scales-by-the-width-of-one-head")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The file of the page: every third submission breaks one claim, every sixth two, and one has a hostile name."""
    folder = tmp_path_factory.mktemp("page")
    store = Store(folder / "grades.sqlite")
    names = [f"s{number:05}" for number in range(MANY - 1)] + [HOSTILE]
    run = store.begin([Submission(name, "a.py:A", group=f"g{number % 4}") for number, name in enumerate(names)], {})
    for number, name in enumerate(names):
        broken = (number % 3 == 0) + (number % 6 == 0)
        results = [
            Result(claim, Verdict.FAIL if at < broken else Verdict.PASS, diagnosis=f"it is wrong: {HOSTILE}").to_json()
            for at, claim in enumerate(CLAIMS)
        ]
        part = {"name": "", "kind": "", "refused": "", "results": results}
        store.add(run, name, f"key {number}", {"parts": [part], "refused": "", "suspicions": [], "seconds": 1.0})
    rubric = default()
    scores = {name: rubric.score(store.results(run, name)) for name in names}
    path = folder / "page.html"
    path.write_text(to_page(store, run, scores), encoding="utf-8")
    store.close()
    return path


@pytest.fixture(scope="module")
def browser(page):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("there is no chromium with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("headless=new", "disable-gpu", f"user-data-dir={page.parent / 'profile'}"):
        options.add_argument(f"--{argument}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.get(page.as_uri())
    yield opened
    opened.quit()


def shown(browser, fragment):
    browser.execute_script(f"location.hash = {fragment!r}; show();")
    return browser.execute_script("return document.getElementById('view').innerText")


def test_the_page_holds_every_submission_and_draws_what_is_asked_for(browser):
    assert "10000 submissions" in shown(browser, "#ranking")
    rows = "return document.querySelectorAll('tbody tr').length"
    assert browser.execute_script(rows) == 100
    browser.execute_script("document.querySelector('button').click()")
    assert browser.execute_script(rows) == 200
    browser.execute_script("const f = document.getElementById('filter'); f.value = 's0012'; f.oninput()")
    assert browser.execute_script(rows) == 10
    assert "10 submissions" in browser.execute_script("return document.getElementById('count').innerText")


def test_groups_claims_and_clusters_are_counted(browser):
    assert "g3" in shown(browser, "#groups")
    claims = shown(browser, "#claims").splitlines()
    assert any(line.startswith(f"3334\t{CLAIMS[0]}") for line in claims)
    assert any(line.startswith(f"1667\t{CLAIMS[1]}") for line in claims)
    clusters = shown(browser, "#clusters")
    assert "1667\tit is wrong" in clusters


def test_one_report_and_two_side_by_side(browser):
    one = shown(browser, "#one/s00000")
    assert "0 claims kept, 2 broken" in one
    assert CLAIMS[1] in one
    pair = shown(browser, "#compare/s00000/s00001")
    assert "s00000" in pair
    assert "2 claims kept, 0 broken" in pair
    assert "there is no submission nobody" in shown(browser, "#one/nobody")


def test_names_and_words_of_submissions_stay_text(browser):
    assert "it is wrong: </script>" in shown(browser, "#one/s00000")
    assert browser.execute_script("return document.images.length") == 0
    assert not browser.get_log("browser")
