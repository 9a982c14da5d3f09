/**
 * A reader of server-sent events that takes text in any pieces and calls back once per event with its joined `data`
 * lines. Comments and other fields are skipped; CR, LF and CRLF all end a line, also when a piece ends between the two.
 */
export function sseReader(onData: (data: string) => void): (text: string) => void {
  let line = '';
  let data: string[] = [];
  let afterCr = false;
  const endOfLine = () => {
    if (line === '') {
      if (data.length > 0) onData(data.join('\n'));
      data = [];
    } else if (line.startsWith('data:')) {
      data.push(line.slice(line[5] === ' ' ? 6 : 5));
    } else if (line === 'data') {
      data.push('');
    }
    line = '';
  };
  return (text) => {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const char = text[at];
      if (char !== '\n' && char !== '\r') {
        afterCr = false;
        continue;
      }
      if (char === '\n' && afterCr) {
        afterCr = false;
        from = at + 1;
        continue;
      }
      line += text.slice(from, at);
      from = at + 1;
      afterCr = char === '\r';
      endOfLine();
    }
    line += text.slice(from);
  };
}
