// Dialogs. The <dialog> element traps the focus and closes on Escape.

import { html, useLayoutEffect, useRef } from "./vendor/htm-preact.js";

let identities = 0;

/** Hook: an id, unique on the page, for this component. */
export function useIdentity(prefix) {
  const identity = useRef(null);
  identity.current ??= `${prefix}-${(identities += 1)}`;
  return identity.current;
}

/** A dialog, open while it is rendered. Closing it restores the focus. */
export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  const titleId = useIdentity("dialog");
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    // Not the first element, which is the close button.
    dialog.querySelector("form input, form select, form textarea, form button")?.focus();
    return () => {
      // The browser restores the focus if the element still exists.
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

/** Move the focus to the page's heading before the focused element is removed. */
export function keepFocus(element) {
  if (document.activeElement !== element) return;
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) focusHeading();
  });
}

// Without a focus, the next Tab would start at the top of the document.
function focusHeading() {
  const heading = document.querySelector("main h1");
  if (heading === null) return;
  heading.tabIndex = -1;
  heading.focus();
}
