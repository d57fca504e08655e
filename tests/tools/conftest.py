"""A browser for the tests of pages, where there is one."""

import pytest


@pytest.fixture(scope="module")
def browser():
    from tools.browser import Browser, missing

    if lacking := missing():
        pytest.skip(f"{lacking} is not here")
    found = Browser()
    yield found
    found.close()
