"""The row of pages at the top, as a visitor uses it."""


def link_to(page, name):
    """The link to the page of this name."""
    return page.locator(".kv-nav").get_by_role("link", name=name, exact=True)


def go(page, name):
    """Go to the page of this name."""
    link_to(page, name).click()
