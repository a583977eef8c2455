// Dialogs: the browser's own <dialog>, which keeps the focus inside and closes on Escape.

import { html, useLayoutEffect, useRef } from "./vendor/htm-preact.js";

let identities = 0;

/** An id that no other element of the page has, and that this component keeps. */
export function useIdentity(prefix) {
  const identity = useRef(null);
  identity.current ??= `${prefix}-${(identities += 1)}`;
  return identity.current;
}

/** A dialog that is open for as long as it is drawn; the focus returns to where it came from. */
export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  const titleId = useIdentity("dialog");
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    // Not the button that closes it, which comes first.
    dialog.querySelector("form input, form select, form textarea, form button")?.focus();
    return () => {
      // The browser gives the focus back, if what had it is still there.
      dialog.close();
      if (!before.isConnected) focusHeading();
    };
  }, []);
  return html`
    <dialog ref=${element} class="dialog" aria-labelledby=${titleId} onClose=${onClose}>
      <div class="dialog-head">
        <h2 id=${titleId}>${title}</h2>
        <button type="button" class="quiet" onClick=${onClose} aria-label="Close this dialog">
          <span aria-hidden="true">×</span>
        </button>
      </div>
      ${children}
    </dialog>
  `;
}

/** Before an element with the focus is taken away: let the page's heading have it then. */
export function keepFocus(element) {
  if (document.activeElement !== element) return;
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) focusHeading();
  });
}

// Without the focus anywhere, the next Tab would begin at the top of the document.
function focusHeading() {
  const heading = document.querySelector("main h1");
  if (heading === null) return;
  heading.tabIndex = -1;
  heading.focus();
}
