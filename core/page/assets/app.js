// "/" goes to the search box. The pages need no more than this of a script.
document.addEventListener("keydown", (event) => {
  const box = document.getElementById("q");
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey || typing || !box) return;
  event.preventDefault();
  box.focus();
  box.select();
});
