// The navigation's link to the page that is shown: named for screen readers, and in sight where the row is cut off.

export function markPage(page, first) {
  for (const link of document.querySelectorAll(".st-key-nav a")) {
    const name = new URL(link.href).pathname.split("/").at(-1)
    const here = (link.getAttribute("href") === "" ? first : name) === page
    if (here === (link.getAttribute("aria-current") === "page")) continue
    if (here) {
      link.setAttribute("aria-current", "page")
      link.scrollIntoView({ block: "nearest", inline: "center" })
    } else {
      link.removeAttribute("aria-current")
    }
  }
}
