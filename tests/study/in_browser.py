"""How tests look at the page of a graph in a browser."""


def settled(chrome):
    """Waits until all that is in the window is drawn: that takes a few frames."""
    assert chrome.wait("return document.getElementById('graph')?.getAttribute('aria-busy') !== 'true'", 30)
    return chrome


def whole(chrome, script):
    """What a script returns of all boxes and lines, as `whole`: those of the saved picture, in the window or not."""
    settled(chrome).run(
        "window.picture = null; HTMLAnchorElement.prototype.click = function () { window.named = this.download; };"
        "URL.createObjectURL = blob => { blob.text().then(text => { window.picture = text; }); return 'data:,'; };"
        "document.getElementById('save').click()"
    )
    assert chrome.wait("return Boolean(window.picture)", 30)
    return chrome.run(
        "const holder = document.createElement('div'); holder.innerHTML = window.picture; document.body.append(holder);"
        f"try {{ return (whole => {{ {script} }})(holder.firstChild); }} finally {{ holder.remove(); }}"
    )


def count(chrome, selector):
    settled(chrome)
    return chrome.run("return document.querySelectorAll(arguments[0]).length", selector)


def boxes(chrome):
    """How many boxes there are, in the window or not."""
    return whole(chrome, "return whole.querySelectorAll('.box').length")


def titles(chrome):
    settled(chrome)
    return sorted(chrome.run("return [...document.querySelectorAll('.box .title')].map(e => e.textContent)"))
