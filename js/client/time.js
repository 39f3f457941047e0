/** Waiting: for a while, or until somebody says stop. */

/** The first pause between two attempts, and the longest. */
const PAUSE_MS = 100
const PAUSE_MS_MAX = 5_000
/** The longest that a timer can wait. */
const TIMER_MS_MAX = 0x7fff_ffff

/** How long to wait before attempt `number + 1`: doubling, and never all clients at once. */
export function pauseMs(number, random = Math.random) {
  const whole = Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** Math.min(number - 1, 20))
  return whole / 2 + (whole / 2) * random()
}

/** Who is to be told when a signal fires. One listener for all of them: Node takes many on one signal for a leak. */
const followers = new WeakMap()

/** Calls `tell(reason)` when the signal fires, at once when it has. What comes back ends that. */
export function follow(signal, tell) {
  if (signal.aborted) {
    tell(signal.reason)
    return () => {}
  }
  let all = followers.get(signal)
  if (all === undefined) {
    all = new Set()
    followers.set(signal, all)
    signal.addEventListener('abort', () => tellAll(signal), { once: true })
  }
  all.add(tell)
  return () => all.delete(tell)
}

function tellAll(signal) {
  const all = followers.get(signal)
  followers.delete(signal)
  for (const tell of all) tell(signal.reason)
}

/** Calls `tell` after a while; never after an endless one. A timer that is given more than it can hold fires at once. What comes back ends that. */
export function later(ms, tell) {
  if (ms === Number.POSITIVE_INFINITY) return () => {}
  let left = ms
  let timer
  const wait = () => {
    const piece = Math.min(left, TIMER_MS_MAX)
    left -= piece
    timer = setTimeout(left > 0 ? wait : tell, piece)
  }
  wait()
  return () => clearTimeout(timer)
}

/** Resolves after a while; rejects with the signal's reason when that comes first. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    let unfollow = () => {}
    const stop = later(ms, () => {
      unfollow()
      resolve()
    })
    unfollow = follow(signal, (reason) => {
      stop()
      reject(reason)
    })
  })
}

/**
 * A signal that fires with any of `signals`, or `fire(reason)`, or after `ms`. `free()` lets go of all of them: no timer and no listener stays.
 */
export function linked(signals, ms = Number.POSITIVE_INFINITY, late = () => new Error('too late')) {
  const controller = new AbortController()
  const freeing = []
  const fire = (reason) => controller.abort(reason)
  for (const signal of signals) if (signal !== undefined) freeing.push(follow(signal, fire))
  freeing.push(later(ms, () => fire(late())))
  return {
    signal: controller.signal,
    fire,
    free: () => {
      for (const each of freeing.splice(0)) each()
    },
  }
}
