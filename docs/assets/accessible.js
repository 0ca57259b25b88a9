// What the theme omits: the name of the search's dialog, and keys that scroll what is wider than its column.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search")

const complete = () => {
  for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0
    else part.removeAttribute("tabindex")
  }
}
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
new ResizeObserver(complete).observe(document.body)
