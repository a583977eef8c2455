// Help for screen readers and keyboards: the theme adds an unnamed landmark to each block of code,
// and wide tables that only a pointer can scroll.
const improve = () => {
  document.querySelectorAll(".md-code__nav").forEach((each, number) => {
    each.setAttribute("aria-label", `Block of code ${number + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((each) => {
    each.tabIndex = 0;
  });
};
new MutationObserver(improve).observe(document.documentElement, { childList: true, subtree: true });
improve();
