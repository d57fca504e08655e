"""What a reader would see: each kind of thing that can be wrong with a page or a picture is found, and nothing else."""

from pathlib import Path

import pytest

from tools import screens

HEAD = "<!doctype html><meta name=viewport content='width=device-width'><style>body { margin: 8px } </style><article>"

pytestmark = pytest.mark.browser

WRONG = {
    "wider than its window": "<p style='width: 2000px'>a long line</p>",
    "text over text": "<p>first words of a page</p><p style='margin-top: -34px'>second words of a page</p>",
    "cut off": "<p style='width: 60px; overflow: hidden; white-space: nowrap'>the end cannot be read by anybody</p>",
    "did not load": "<img src='nowhere.png'>",
}

RIGHT = """<h1>Title</h1><p>words <code>code</code> and <b>more</b></p>
<pre style='overflow-x: auto'>a line of code that is {}longer than a window is wide</pre>
<p style='display: none; width: 60px; overflow: hidden'>invisible</p>
<details><summary>closed</summary>hidden</details>""".replace("{}", "much, " * 40)

PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' width='200' height='60'>{}</svg>"


def seen(browser, folder, name, text, width=400):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return screens.look(browser, screens.View(file, width, "light"))


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_page_is_said(browser, tmp_path, what):
    found = seen(browser, tmp_path, "page.html", HEAD + WRONG[what])
    assert [line.split(":")[0] for line in found] == [what]


@pytest.mark.parametrize("width", screens.WIDTHS)
def test_nothing_is_said_of_a_page_that_can_be_read(browser, tmp_path, width):
    assert seen(browser, tmp_path, "page.html", HEAD + RIGHT, width) == []


def test_labels_of_a_picture_stay_apart_and_inside(browser, tmp_path):
    apart = "<text x='5' y='20'>one</text><text x='5' y='40'>two</text>"
    rim = "<text x='5' y='20' aria-hidden='true' stroke='white'>one</text>"
    assert seen(browser, tmp_path, "a.svg", PICTURE.format(rim + apart)) == []
    over = "<text x='5' y='20'>one label</text><text x='9' y='22'>another</text>"
    assert seen(browser, tmp_path, "b.svg", PICTURE.format(over)) == ["text over text: one label / another"]
    beyond = "<text x='180' y='20'>a label that leaves</text>"
    assert seen(browser, tmp_path, "c.svg", PICTURE.format(beyond)) == ["leaves the picture: a label that leaves"]


def test_pages_have_three_widths_and_two_themes_and_pictures_one_width(tmp_path):
    for name in ("page.html", "picture.svg", "notes.txt"):
        (tmp_path / name).touch()
    assert len(screens.views([tmp_path])) == 3 * 2 + 2
    assert {str(view) for view in screens.views([tmp_path / "picture.svg"])} == {
        f"{tmp_path / 'picture.svg'} at 1400 px, {theme}" for theme in ("light", "dark")
    }


def test_a_folder_that_is_not_there_and_one_without_pages_are_each_a_sentence(tmp_path, capsys):
    for place, said in ((tmp_path / "none", "is not there: build the site first"), (tmp_path, "no .html or .svg file")):
        with pytest.raises(SystemExit):
            screens.main([str(place)])
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_says_where_something_is_wrong(browser, tmp_path, capsys):
    (tmp_path / "page.html").write_text(HEAD + WRONG["did not load"], encoding="utf-8")
    assert screens.main([str(tmp_path), "--shots", str(tmp_path / "shots")]) == 1
    out = capsys.readouterr().out
    assert "page.html at 1000 px, dark: did not load" in out
    assert out.endswith("6 views, 6 with something wrong\n")
    assert len(list(Path(tmp_path / "shots").glob("*.png"))) == 6
