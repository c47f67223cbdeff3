/**
 * An instance of one of some classes.
 * @template {(abstract new (...given: any[]) => unknown)[]} Classes
 * @param {unknown} value
 * @param {string} name
 * @param {Classes} classes
 * @returns {InstanceType<Classes[number]>}
 */
export function instanceOf<Classes extends (abstract new (...given: any[]) => unknown)[]>(value: unknown, name: string, ...classes: Classes): InstanceType<Classes[number]>;
/**
 * Checks for an integer, from -2^31 to 2^31 - 1 by default.
 * @param {unknown} value
 * @param {string} name
 */
export function integer(value: unknown, name: string, least?: number, most?: number): number;
/**
 * Any number.
 * @param {unknown} value
 * @param {string} name
 */
export function real(value: unknown, name: string): number;
/**
 * true or false.
 * @param {unknown} value
 * @param {string} name
 */
export function truth(value: unknown, name: string): 0 | 1;
/**
 * Returns the index of a word in a list.
 * @param {unknown} value
 * @param {string} name
 * @param {readonly string[]} words
 */
export function choice(value: unknown, name: string, words: readonly string[]): number;
/**
 * Settings by name: an object that has no others.
 * @template {object} T
 * @param {T} value
 * @param {string} name
 * @param {readonly string[]} known
 * @returns {T}
 */
export function options<T extends object>(value: T, name: string, known: readonly string[]): T;
export function count(value: unknown, name: string): number;
