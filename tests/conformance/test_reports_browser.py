"""The HTML report in a real browser: filters, groups, keyboard, links, copying, dark mode, and hostile names."""

from __future__ import annotations

import os
import shutil

import pytest
from reports import BLOCKED, HOSTILE, POSITIONS, SCALED, broken, kept

from conformance.page import to_html

pytestmark = pytest.mark.browser
webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("there is no chromium with chromedriver (Debian: chromium, chromium-driver)", allow_module_level=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "disable-gpu", "window-size=1200,900", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium has none for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, tmp_path):
    """Open the page of some reports. What the browser complains about fails the test."""

    def open_page(*reports, fragment=""):
        path = tmp_path / "page.html"
        path.write_text(to_html(reports), encoding="utf-8")
        browser.get(f"{path.as_uri()}{fragment}")
        return browser

    yield open_page
    assert not browser.get_log("browser")


def visible(browser):
    """The slugs of the claims that can be seen."""
    return [row.get_attribute("id") for row in browser.find_elements("css selector", ".claim") if row.is_displayed()]


def choose(browser, field, value):
    script = (
        "const f = document.getElementById(arguments[0]); f.value = arguments[1]; f.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(script, field, value)


def headings(browser):
    return [h.text for h in browser.find_elements("css selector", ".group h2") if h.is_displayed()]


@pytest.mark.slow
def test_root_causes_come_first_and_are_open(page):
    browser = page(broken())
    assert visible(browser) == [SCALED, BLOCKED, POSITIONS]
    assert headings(browser) == ["FAIL 1", "BLOCKED 1", "NOT PROVIDED 1"]
    opened = [row.get_attribute("id") for row in browser.find_elements("css selector", ".claim[open]")]
    assert opened == [SCALED]
    text = browser.find_element("id", SCALED).text
    for part in ("expected\n0.5", "got\n1", "off by 0.5, bound 1e-06", "d_k=4", f"pytest --claims {SCALED}", BLOCKED):
        assert part in text


def test_verdicts_filter(page):
    browser = page(broken())
    chip = browser.find_element("css selector", ".chip[data-verdict='NOT PROVIDED']")
    chip.click()
    assert visible(browser) == [POSITIONS]
    assert chip.get_attribute("aria-pressed") == "true"
    assert browser.find_element("id", "shown").text == "1 of 3 claims"
    chip.click()
    assert len(visible(browser)) == 3


def test_text_topic_and_document_filter_claims_and_errata(page):
    browser = page(broken())
    choose(browser, "text", "D_K=4 bound")
    assert visible(browser) == [SCALED]
    choose(browser, "text", "")
    choose(browser, "topic", "positions")
    assert visible(browser) == [POSITIONS]
    shown = [row for row in browser.find_elements("css selector", ".erratum") if row.is_displayed()]
    assert shown
    assert {row.get_attribute("data-topic") for row in shown} == {"positions"}
    browser.find_element("css selector", "button[type=reset]").click()
    choose(browser, "document", "004")
    for slug in visible(browser):
        assert "004" in browser.find_element("id", slug).get_attribute("data-documents")
    choose(browser, "text", "no such words anywhere")
    assert visible(browser) == []
    assert browser.find_element("id", "nothing").is_displayed()


def test_claims_regroup_by_topic_and_document_and_back(page):
    browser = page(broken())
    choose(browser, "group", "topic")
    assert headings(browser) == ["attention 2", "positions 1"]
    choose(browser, "group", "document")
    assert all(heading[:3].isdigit() for heading in headings(browser))
    choose(browser, "group", "verdict")
    assert headings(browser) == ["FAIL 1", "BLOCKED 1", "NOT PROVIDED 1"]


def test_everything_works_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    browser = page(broken())
    body = browser.find_element("tag name", "body")
    body.send_keys("/")
    field = browser.switch_to.active_element
    assert field.get_attribute("id") == "text"
    field.send_keys("sqrt", Keys.ESCAPE)
    body.send_keys("j")
    summary = browser.switch_to.active_element
    assert SCALED in summary.text
    summary.send_keys(Keys.ENTER)
    assert browser.find_element("id", SCALED).get_attribute("open") is None
    field.clear()
    body.send_keys("j", "j")
    assert BLOCKED in browser.switch_to.active_element.text
    body.send_keys("k")
    assert SCALED in browser.switch_to.active_element.text


def test_a_link_opens_its_claim_even_where_a_filter_hides_it(page):
    browser = page(broken(), fragment=f"#{POSITIONS}")
    assert browser.find_element("id", POSITIONS).get_attribute("open")
    choose(browser, "topic", "positions")
    browser.execute_script("location.hash = arguments[0]", BLOCKED)
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert BLOCKED in visible(browser)
    assert browser.find_element("id", BLOCKED).get_attribute("open")


def test_implementations_stand_side_by_side(page):
    browser = page(kept("one"), broken("some/two"))
    assert [c.text for c in browser.find_elements("css selector", ".columns span")] == ["one", "two"]
    assert headings(browser) == ["PASS / FAIL 1", "PASS / BLOCKED 1", "PASS / NOT PROVIDED 1"]
    columns = [c.rect["x"] for c in browser.find_elements("css selector", ".columns span")]
    badges = browser.find_elements("css selector", f"[id='{SCALED}'] > summary .verdict")
    assert [badge.text for badge in badges] == ["PASS", "FAIL"]
    assert [badge.rect["x"] for badge in badges] == pytest.approx(columns, abs=1)


def test_hostile_names_do_nothing(page):
    browser = page(broken(HOSTILE), kept(HOSTILE))
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert browser.title != "hacked"
    assert HOSTILE in browser.find_element("tag name", "h1").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page, scheme):
    browser = page(broken())
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for selector in (
        "body",
        "code",
        "dt",
        "summary .verdict",
        ".chip small",
        ".correction",
        "label",
        ".heats td",
        ".scale",
        ".wrong",
    ):
        text, ground = (_luminance(browser, selector, name) for name in ("color", "background-color"))
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, selector


def _luminance(browser, selector, name):
    """Relative luminance (WCAG 2) of an element's colour; of the first ground that is not transparent."""
    script = """
      let node = document.querySelector(arguments[0]);
      let value = getComputedStyle(node)[arguments[1]];
      while (value === "rgba(0, 0, 0, 0)") { node = node.parentElement; value = getComputedStyle(node)[arguments[1]]; }
      return [value.startsWith("color(") ? 1 : 255, ...value.match(/[\\d.]+/g).map(Number)];
    """
    full, *numbers = browser.execute_script(script, selector, name)
    channels = [c / full for c in numbers[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
