// Rendering of record keys and values: printable text as is, everything else escaped.

import { html, useState } from "./vendor/htm-preact.js";
import { formatBytes } from "./format.js";
import { Badge } from "./parts.js";

const SHOWN_MAX = 240;

// Control characters, and characters that change the text direction.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text with invisible characters escaped, except line ends if `isLines`. */
export function visible(text, isLines = false) {
  return text.replace(UNSAFE, (character) => {
    const code = character.codePointAt(0);
    if (character === "\n") return isLines ? character : "\\n";
    if (character === "\t") return "\\t";
    return code < 0x100 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`;
  });
}

function hex(number, digits) {
  return number.toString(16).padStart(digits, "0");
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Bytes as text, with unprintable bytes as `\\xff`. */
function escaped(bytes) {
  let text = "";
  for (const byte of bytes) {
    if (byte === 0x5c) text += "\\\\";
    else text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${hex(byte, 2)}`;
  }
  return text;
}

/** Return the bytes of the field `name` of a record, or null. */
export function bytesOfField(record, name) {
  const base64 = record[`${name}_base64`];
  if (base64 !== undefined) return bytesOf(base64);
  return record[name] == null ? null : new TextEncoder().encode(record[name]);
}

const LINE_MAX = 500;

/** Return the field as one line of text, or null. */
export function lineOf(record, name) {
  const decoded = record.decoded?.[name];
  if (decoded != null) return visible(typeof decoded === "string" ? decoded : JSON.stringify(decoded)).slice(0, LINE_MAX);
  const base64 = record[`${name}_base64`];
  if (base64 !== undefined) return escaped(bytesOf(base64).slice(0, LINE_MAX));
  return record[name] == null ? null : visible(record[name].slice(0, LINE_MAX));
}

/** The field `name` of a record: JSON has `key`, or `key_base64` if it is not text. */
export function Field({ record, name, nullWord = "null" }) {
  const decoded = record.decoded?.[name];
  const base64 = record[`${name}_base64`];
  if (base64 === undefined && record[name] == null) return html`<${Badge}>${nullWord}</${Badge}>`;
  const bytes = base64 === undefined ? null : bytesOf(base64);
  const text = bytes === null ? visible(String(record[name])) : escaped(bytes);
  return html`
    ${decoded != null && html`<${Long} text=${decodedText(decoded)} />`}
    ${decoded == null && text === "" && html`<span class="dim">empty</span>`}
    ${decoded == null && html`<${Long} text=${text} />`}
    ${bytes !== null && html`<span class="explanation">${decoded != null ? "decoded from " : "no text, "}${formatBytes(bytes.length)}</span>`}
  `;
}

function decodedText(decoded) {
  return typeof decoded === "string" ? visible(decoded) : JSON.stringify(decoded, null, 1);
}

function Long({ text }) {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= SHOWN_MAX) return html`<code class="bytes">${text}</code>`;
  return html`
    <code class="bytes">${isWhole ? text : `${text.slice(0, SHOWN_MAX)}…`}</code>
    <button type="button" class="quiet" aria-expanded=${isWhole} onClick=${() => setWhole(!isWhole)}>
      ${isWhole ? "Show less" : `Show all ${text.length.toLocaleString("en-US")} characters`}
    </button>
  `;
}

/** Headers of a record, `[name, value]` each. */
export function Headers({ headers }) {
  if (!headers?.length) return null;
  return html`
    <dl class="headers" aria-label="Headers">
      ${headers.map(([name, value]) => html`
        <div>
          <dt>${visible(name)}</dt>
          <dd>${typeof value === "object" && value !== null
            ? html`<${Field} record=${{ value_base64: value.base64 }} name="value" />`
            : html`<${Field} record=${{ value }} name="value" />`}</dd>
        </div>
      `)}
    </dl>
  `;
}
