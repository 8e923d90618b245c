// How fast a run is shown again: at its own speed, unless nobody could follow that or would wait for it.

const SHORTEST_S = 2
const LONGEST_S = 25
const SLOW_MOTION_S = 6 // on the screen, of a run that took less than SHORTEST_S

// Seconds of a run of `seconds` that one second on the screen shows.
export const pace = (seconds) => (seconds < SHORTEST_S ? Math.min(1, seconds / SLOW_MOTION_S) : Math.max(1, Math.ceil(seconds / LONGEST_S)))

// The pace in words; "" at the run's own speed.
export function paceWords(speed) {
  if (speed < 1) return `shown ${(1 / speed).toFixed(0)} times slower`
  return speed > 1 ? `shown ${speed} times as fast` : ""
}
