// Values and times as people read them.

/** @type {(value: number | null | undefined, digits?: number) => string} */
export function points(value, digits = 1) {
  return value?.toFixed(digits) ?? "–";
}

const UNITS = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"];

/** @type {(value: number | null, measure?: string) => string} */
export function traffic(value, measure = "msg_throughput") {
  if (value === null) return "–";
  if (measure === "msg_rate") return `${Math.round(value).toLocaleString("en")} msg/s`;
  const power = Math.floor(Math.log2(Math.max(1, value)) / 10);
  const unit = Math.min(power, UNITS.length - 1);
  const size = value / 1024 ** unit;
  return `${size.toFixed(unit && size < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** @param {number} seconds */
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  if (whole < 129600) return `${Math.round(whole / 3600)} h`;
  return `${Math.round(whole / 86400)} d`;
}

/**
 * Return a time of today without its date, any other time with it.
 * @param {string} text - ISO 8601
 */
export function moment(text, now = new Date()) {
  const at = new Date(text);
  if (at.toDateString() === now.toDateString()) return at.toLocaleTimeString("en-GB");
  return at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** @type {(count: number, noun: string) => string} */
export function several(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** @param {string} name - of a resource */
export function words(name) {
  return name.replaceAll("_", " ");
}
