// Whether the page is dark, as it stands.

export function isDark() {
  const [r, g, b] = getComputedStyle(document.querySelector(".stApp") ?? document.body).backgroundColor.match(/\d+/g).map(Number)
  return 0.299 * r + 0.587 * g + 0.114 * b < 128
}
