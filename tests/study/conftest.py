"""A browser, and the page of a small model in training."""

import pytest
from pages import traced_model

from tools import browser


@pytest.fixture
def traced():
    return traced_model()


@pytest.fixture(scope="module")
def chrome():
    found = browser.Browser()
    yield found
    found.close()


@pytest.fixture
def page(chrome, traced, tmp_path):
    _, x, graph = traced
    path = tmp_path / "page.html"
    path.write_text(graph.html(inputs=[x]), encoding="utf-8")
    chrome.open(path)
    yield chrome
    assert chrome.errors() == []
