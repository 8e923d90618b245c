// How a component lives as long as its place on the page: one instance of its class for each place, whatever Streamlit
// draws again. The `mount` that comes back makes a `Kind` of the place's element `root` and of the first data, updates it
// with each data that follows, and closes it with its place.

export function mounted(Kind, root) {
  const instances = new WeakMap()
  return ({ data, parentElement, setTriggerValue, setStateValue }) => {
    const instance = instances.get(parentElement) ?? new Kind(parentElement.querySelector(root), data)
    instances.set(parentElement, instance)
    instance.update?.(data, setTriggerValue, setStateValue)
    return () => {
      instance.close?.()
      instances.delete(parentElement)
    }
  }
}
