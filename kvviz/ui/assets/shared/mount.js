export default function (component) {
  let cleanup = null
  let gone = false
  import(new URL("SCRIPT", location.origin).href).then((module) => {
    if (!gone) cleanup = module.mount(component)
  })
  return () => {
    gone = true
    if (cleanup) cleanup()
  }
}
