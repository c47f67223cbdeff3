// Checks of arguments. JavaScript passes any value to a function, and WebAssembly would convert it to a number.
import { GradscaleError } from "./library.js";

/**
 * Describes a value for an error message.
 * @param {unknown} value
 */
const kind = (value) => {
  if (typeof value === "number") return `${value}`;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "object" && value !== null) return value.constructor?.name ?? "an object";
  return String(value);
};

/**
 * An instance of one of some classes.
 * @template {(abstract new (...given: any[]) => unknown)[]} Classes
 * @param {unknown} value
 * @param {string} name
 * @param {Classes} classes
 * @returns {InstanceType<Classes[number]>}
 */
export function instanceOf(value, name, ...classes) {
  const found = classes.find((one) => value instanceof one);
  if (!found) {
    const names = classes.map((one) => one.name).join(" or ");
    throw new TypeError(`${name} must be ${/^[AEIO]/.test(names) ? "an" : "a"} ${names}, not ${kind(value)}`);
  }
  return /** @type {InstanceType<Classes[number]>} */ (value);
}

/**
 * Checks for an integer, from -2^31 to 2^31 - 1 by default.
 * @param {unknown} value
 * @param {string} name
 */
export function integer(value, name, least = -(2 ** 31), most = 2 ** 31 - 1) {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number, not ${kind(value)}`);
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${name} must be a whole number from ${least} to ${most}, not ${value}`);
  }
  return value;
}

/**
 * A number that is counted with: 0 to 2^32 - 1.
 * @param {unknown} value
 * @param {string} name
 */
export const count = (value, name) => integer(value, name, 0, 2 ** 32 - 1);

/**
 * Any number.
 * @param {unknown} value
 * @param {string} name
 */
export function real(value, name) {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number, not ${kind(value)}`);
  return value;
}

/**
 * true or false.
 * @param {unknown} value
 * @param {string} name
 */
export function truth(value, name) {
  if (typeof value !== "boolean") throw new TypeError(`${name} must be true or false, not ${kind(value)}`);
  return value ? 1 : 0;
}

/**
 * Returns the index of a word in a list.
 * @param {unknown} value
 * @param {string} name
 * @param {readonly string[]} words
 */
export function choice(value, name, words) {
  const at = typeof value === "string" ? words.indexOf(value) : -1;
  if (at < 0) throw new GradscaleError("GS_ERROR_ENUM", `${name} must be one of ${words.join(", ")}, not ${kind(value)}`);
  return at;
}

/**
 * Settings by name: an object that has no others.
 * @template {object} T
 * @param {T} value
 * @param {string} name
 * @param {readonly string[]} known
 * @returns {T}
 */
export function options(value, name, known) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${name} must be an object, not ${kind(value)}`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw new TypeError(`${name} has no ${key}; it takes ${known.join(", ")}`);
  }
  return value;
}
