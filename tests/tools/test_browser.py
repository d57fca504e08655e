"""The browser of our tests: what it reads is drawn, and what a page throws is told."""

import urllib.error

import pytest

pytestmark = pytest.mark.browser

COUNTER = """<!doctype html><title>Counter</title><p>0</p><script>
let n = 0;
onclick = () => { n += 1; requestAnimationFrame(() => { document.querySelector('p').textContent = n; }); };
</script>"""


@pytest.fixture
def counter(browser, tmp_path):
    page = tmp_path / "counter.html"
    page.write_text(COUNTER, encoding="utf-8")
    browser.open(page)
    return browser


def test_what_a_click_asks_for_is_drawn_before_it_is_read(counter):
    before = int(counter.run("return document.querySelector('p').textContent"))
    for n in range(1, 31):
        counter.run("document.querySelector('p').click()")
        assert int(counter.run("return document.querySelector('p').textContent")) == before + n


def test_a_script_gets_its_arguments_and_may_give_a_promise(counter):
    assert counter.run("return arguments[0] + arguments[1] // the sum", 2, 3) == 5
    assert counter.run("return new Promise(done => setTimeout(() => done('later'), 20))") == "later"


def test_what_a_script_throws_is_told(counter):
    with pytest.raises(urllib.error.HTTPError, match="null"):
        counter.run("return document.querySelector('#nowhere').textContent")
