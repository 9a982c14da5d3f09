// The search of the list of guides: each word must be in a guide. What is looked for is in the address.
addEventListener('DOMContentLoaded', () => {
  const field = document.querySelector('#find');
  const said = document.querySelector('#found');
  if (field === null || said === null) return;
  const rows = [...document.querySelectorAll('[data-words]')];
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => {
      row.hidden = !words.every((word) => row.dataset.words.includes(word));
      return !row.hidden;
    });
    const count = found.length === 1 ? '1 guide has that' : `${found.length} guides have that`;
    said.textContent = words.length === 0 ? '' : found.length === 0 ? 'No guide has that' : count;
    const query = words.length === 0 ? '' : `?${new URLSearchParams({ q: field.value })}`;
    history.replaceState(null, '', location.pathname + query);
  };
  field.value = new URLSearchParams(location.search).get('q') ?? '';
  field.addEventListener('input', show);
  show();
});
