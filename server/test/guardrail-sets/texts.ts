/** Texts that checks of texts let pass and refuse. */
type Parameters = Record<string, unknown>;
/** A check, its parameters, texts that pass and texts that fail. */
export type Row = readonly [id: string, parameters: Parameters, passes: readonly string[], fails: readonly string[]];

const family = '👨‍👩‍👧‍👦';
const many = (text: string, n: number) => text.repeat(n);
const fence = (language: string, body: string) => `Here:\n\`\`\`${language}\n${body}\n\`\`\`\ndone`;

// Rows as tables: one line for what passes, one for what fails.
// biome-ignore format: a table is read by column
export const TEXT_ROWS: readonly Row[] = [
  ['default.regexMatch', { rule: '^\\d{3}$' }, ['123', '000', '999', '１２３'], ['12', '1234', '', '１２３４', 'a123', '12 3', '123\n']],
  ['default.regexMatch', { rule: '(?i)straße|ÉCOLE' }, ['Straße', 'eine STRAßE hier', 'école', 'École', 'e\u0301cole'], ['strasse', 'ecole', 'strase']],
  ['default.regexMatch', { rule: '\\p{Han}{2}' }, ['漢字', 'a漢字b'], ['漢', 'かな', '漢 字']],
  ['default.regexMatch', { rule: 'a.c' }, ['abc', 'a🙂c', 'xxabcxx'], ['a\nc', 'ac', 'abbc']],
  ['default.regexMatch', { rule: '(?s)a.*z' }, ['a\n\nz', 'az', 'a'.padEnd(5_000, 'b').concat('z')], ['za', 'b', 'A z']],
  ['default.regexMatch', { rule: 'secret', not: true }, ['', 'nothing', 'secre t', 'SECRET', 'сеcret'], ['secret', 'a secret.', 'topsecrets']],
  ['default.regexMatch', { rule: '(a+)+$' }, ['a', 'aaaa', 'ba'], [many('a', 500).concat('!'), 'ab']],

  [
    'default.wordCount',
    { minWords: 2, maxWords: 4 },
    ['one two', 'a b c d', "don't stop", ' x \n y ', 'well-known facts', 'über naïve', '1 2 3', '東京都', 'a\u00a0b', 'a\u3000b', 'one, two!', '— a b —', 'e\u0301 a', 'Привет мир', 'مرحبا بالعالم', 'a\tb'],
    ['', 'one', 'a b c d e', '!!! ???', '🙂🙂 🙂', '   ', 'word.', many('a ', 50), 'one - !', '-- --', '\n\n', 'one_two', '東', '١', 'a b c d e f'],
  ],
  ['default.wordCount', { maxWords: 1 }, ['', 'one', '...', 'e-mail', '🙂'], ['a b', 'one two', '日本語を書く', 'กรุณาส่งใบแจ้งหนี้']],
  ['default.wordCount', { minWords: 1, not: true }, ['', '...'], ['a', 'x y']],

  [
    'default.sentenceCount',
    { minSentences: 2, maxSentences: 3 },
    ['One. Two.', 'One! Two? Three.', 'Go! Stay.', 'A? B.', 'A b.\n\nC d.', 'これは文です。もう一つ。', 'Это раз. Это два.', 'Yes! No!', 'He said "Go." She went.', 'One? Yes. No.', '第一句。第二句！', 'Hola. ¿Qué tal?', 'Eins. Zwei. Drei.', 'A!! B!!', 'One.\nTwo.', 'Is 3.5 more? Yes.', 'ok 1. Ok 2.'],
    ['', 'One', 'One.', 'One. Two. Three. Four.', 'It costs 3.50 today.', '...', '。。。', 'no stop at all', '🙂', 'www.example.com', 'A, b, c.', 'x', 'Eins', 'これは文です。', '!!!', 'e.g. this'],
  ],
  ['default.sentenceCount', { maxSentences: 0 }, ['', '!!!', '   ', '🙂'], ['a', 'A.', '一', '1.']],

  [
    'default.characterCount',
    { minCharacters: 1, maxCharacters: 5 },
    ['a', 'abcde', family, many(family, 5), 'e\u0301e\u0301e\u0301e\u0301e\u0301', '🇩🇪🇫🇷', '漢字', '\n', '\r\n\r\n\r\n\r\n\r\n', ' ', '👍🏽👍🏽👍🏽👍🏽👍🏽', 'ñandú', 'क्षि', '12345', 'नमस्ते', '❤️❤️❤️❤️❤️', '각'],
    ['', 'abcdef', many(family, 6), '漢字漢字漢字', '\n\n\n\n\n\n', many('e\u0301', 6), many('🇩🇪', 6), '123456', many(' ', 6), '\r\r\r\r\r\r', 'hello!', many('👍🏽', 6), many('x', 10_000), many('é', 10_001), many('❤️', 6)],
  ],
  ['default.characterCount', { minCharacters: 10_000 }, [many('x', 10_000), many('🙂', 10_000), many(family, 10_000)], [many('x', 9_999), many('🙂', 9_999), many('e\u0301', 9_999), many('🇩🇪', 5_001), many(family, 9_999)]],
  ['default.characterCount', { maxCharacters: 3, not: true }, ['abcd'], ['abc', '']],

  [
    'default.alluppercase',
    {},
    ['A', 'ABC', 'ÄÖÜ', 'ПРИВЕТ', 'ΑΒΓ', '123', '', '!?', 'A1!', '漢字', 'ABC DEF', 'ŁÓDŹ', '🙂', 'A\nB', 'ÇĞ', 'X-Y', ' ', 'مرحبا', 'İ', 'ÑANDÚ'],
    ['a', 'Abc', 'ABc', 'ß', 'ПРИВЕт', 'αΒΓ', 'é', 'aBC', 'ǅ', 'ﬁ', 'ABC d', 'ñ', 'ı', 'ö', 'x1', 'A\nb', 'ŉ', 'ς', 'ⓐ', 'ｘ'],
  ],
  [
    'default.isAllLowerCase',
    {},
    ['a', 'abc', 'äöü', 'ß', 'привет', 'αβγ', '123', '', '!?', 'a1!', '漢字', 'ñ', '🙂', 'a\nb', 'ç', 'x-y', ' ', 'ﬁ', 'ı', 'ⓐ'],
    ['A', 'aBc', 'Abc', 'Ä', 'Привет', 'αΒγ', 'É', 'abC', 'ǅ', 'İ', 'abc D', 'Ñ', 'I', 'Ö', 'X1', 'a\nB', 'Ⓐ', 'Ｘ', 'ẞ', 'Σ'],
  ],
  ['default.isAllLowerCase', { not: true }, ['A'], ['a']],

  ['default.endsWith', { suffix: 'é.' }, ['café.', 'cafe\u0301.', 'é.', 'x\né.', '🙂é.', 'É é.', 'ééé.', 'aé.', 'é．'], ['café', 'cafe.', 'é. ', 'É.', '', '.', 'é.x', 'é．x', 'é.\n', 'e.']],
  ['default.endsWith', { suffix: '🙂' }, ['🙂', 'ok🙂', '🙃🙂', ' 🙂'], ['🙂 ', '🙃', 'ok', '\ud83d', '🙂!', '🙂🙃']],
  ['default.endsWith', { suffix: '}' }, ['{}', '}', '\n}', 'a}', '}}', 'ü}'], ['{', '} ', '', '}\n']],
  ['default.endsWith', { suffix: '.', not: true }, ['a', ''], ['a.', '.']],

  ['default.contains', { words: ['apple', 'Straße'] }, ['an apple', 'pineapple', 'Straße', 'Hauptstraße Straße', 'apple Straße', 'apple', 'xappley'], ['Apple', 'strasse', '', 'appl e', 'ap-ple', 'STRASSE', 'aple']],
  ['default.contains', { words: ['a', 'b', '🙂'], operator: 'all' }, ['ab🙂', '🙂ba', 'a b 🙂', 'xxbxaxx🙂'], ['ab', 'a', '', '🙂', 'b🙂', 'AB🙂', 'a🙂', '🙃ab']],
  ['default.contains', { words: ['bad', '悪い', 'e\u0301'], operator: 'none' }, ['', 'good', 'BAD', 'ba d', '悪', 'è', 'b', 'dab', '良い'], ['bad', 'very bad', '悪い', 'これは悪い', 'e\u0301', 'é', 'badge', 'b\u00ada\u200bd']],

  [
    'default.containsCode',
    { format: 'SQL' },
    [fence('sql', 'x'), fence('SQL', ''), fence('', 'SELECT a FROM b;'), 'SELECT name FROM users WHERE id = 1;', '~~~postgresql\nx\n~~~', '```sql\nopen', fence('mysql', 'x'), 'INSERT INTO t\nVALUES (1);'],
    ['select a friend', '', fence('python', 'SELECT 1 FROM x;'), 'I want to SELECT one.', '`sql`', fence('json', '{}'), 'sql', fence('sqlx', '')],
  ],
  [
    'default.containsCode',
    { format: 'Python' },
    [fence('python', 'x'), fence('py', ''), fence('', 'import os\nprint(1)'), 'def f(a):\n  print(a)', fence('Python3', '1')],
    ['print it', fence('pyx', ''), 'import taxes are high', 'def', fence('js', 'print(1)\nimport x'), ''],
  ],
  ['default.containsCode', { format: 'C++' }, [fence('cpp', ''), fence('c++', 'x'), '#include <vector>\nstd::vector<int> a;'], [fence('c', ''), 'c++ is fun', '#include <stdio.h>']],
  [
    'default.containsCode',
    { format: 'JSON' },
    [fence('json', '{}'), '{"a": 1}', fence('', '[{"b": true}]')],
    ['{a}', 'json', 'a: 1'],
  ],
  ['default.containsCode', { format: 'HTML', not: true }, ['plain', '1 < 2 and 3 > 2'], ['<div>a</div>', fence('html', '')]],

  [
    'default.jsonSchema',
    { schema: { type: 'object', required: ['a'], properties: { a: { type: 'integer', minimum: 1 } } } },
    ['{"a":1}', ' {"a": 2}\n', fence('json', '{"a":3}'), 'It is {"a": 4}.', '{"a":1.0}', '{"a":1,"b":"ü"}', fence('', '{"a":9}'), '{} and {"a":5}'],
    ['{"a":0}', '{"a":"1"}', '{}', '[]', '', 'no', '{"a":1', '{"a":1.5}', 'null', '{"a":null}', '{"A":1}', fence('json', '{"a":0}')],
  ],
  [
    'default.jsonSchema',
    { schema: { type: 'array', items: { enum: ['x', '漢'] }, minItems: 1, uniqueItems: true } },
    ['["x"]', '["漢"]', '["x","漢"]', 'list: ["x"]'],
    ['[]', '["y"]', '["x","x"]', '{"x":1}', '"x"'],
  ],
  [
    'default.jsonSchema',
    {
      schema: {
        $defs: { n: { type: 'object', properties: { next: { $ref: '#/$defs/n' } }, additionalProperties: false } },
        $ref: '#/$defs/n',
      },
    },
    ['{}', '{"next":{}}', '{"next":{"next":{}}}'],
    ['{"next":1}', '{"nxt":{}}', '{"next":{"x":1}}'],
  ],
  ['default.jsonSchema', { schema: { type: 'string', maxLength: 2, pattern: '^\\p{L}+$' } }, ['"ab"', '"漢字"', '"𝒳𝒴"', '"é"', '"a"'], ['"abc"', '"1"', '""', '"𝒳𝒴𝒵"']],

  [
    'default.jsonKeys',
    { keys: ['a', 'b'] },
    ['{"a":1}', '{"b":null}', '{"a":1,"b":2}', fence('json', '{"b":1}'), 'so {"a":1}', '{"c":1,"a":2}', '{"\\u0061":1}'],
    ['{}', '{"c":1}', '', 'a b', '[]', '{"A":1}', '["a"]', '{"x":{"a":1}}', '{"a":1'],
  ],
  ['default.jsonKeys', { keys: ['ü', '🙂'], operator: 'all' }, ['{"ü":1,"🙂":2}', '{"🙂":1,"x":0,"ü":1}', '{} {"ü":1,"🙂":1}', fence('json', '{"ü":1,"🙂":1}')], ['{"ü":1}', '{"🙂":1}', '{}', '', '{"u\u0308":1,"🙂":1}', '{"ü":1} {"🙂":1}']],
  [
    'default.jsonKeys',
    { keys: ['__proto__', 'x'], operator: 'none' },
    ['{}', '{"a":1}', 'no json', '', '[]', '1', '{"X":1}', '{"y":{"x":1}}', 'null'],
    ['{"x":1}', '{"__proto__":1}', 'see {"x":0}', fence('json', '{"x":1}'), '{"a":1} {"x":1}'],
  ],

  [
    'default.notNull',
    {},
    ['a', '0', '.', 'null', '🙂', ' a ', '\na', 'false', '\u200bx', 'é', '[]', '{}', '漢', '-', '"', 'no', 'x\n', '\0', 'undefined', '٠'],
    ['', ' ', '\n', '\t', '\r\n', '   ', '\u00a0', '\u3000', '\u2003', '\ufeff', '\n\n\n', ' \t ', '\u2028', '\u2029', '\v', '\f', '\u1680', '\u202f', '\u205f', '\u2000\u2001'],
  ],
  ['default.notNull', { not: true }, ['', ' '], ['a']],

  [
    'gateway.language',
    { language: 'eng_Latn' },
    ['Please send me the invoice by Friday.', 'How do I reset my password?', 'What is the capital of France?', 'The weather is nice today.', 'She walked slowly through the old town.', 'This function returns the number of users.', 'Thank you very much for your help with this.', 'Could you explain how this works?', 'abc', '', '12345', '🙂🙂🙂', 'We will meet again tomorrow morning.', 'I would like to order a large pizza.', 'The meeting has been moved to next week.', 'There are many reasons why people travel.', 'It was raining when they left the house.', 'Nobody knows what happened to the ship.', 'You should read the documentation first.', '!!!'],
    ['Bitte schicken Sie mir die Rechnung bis Freitag.', 'Merci de m’envoyer la facture avant vendredi.', 'Por favor, envíame la factura antes del viernes.', 'Per favore mandami la fattura entro venerdì.', 'Por favor, envie-me a fatura até sexta-feira.', 'Stuur mij alstublieft de factuur voor vrijdag.', 'Proszę wyślij mi fakturę do piątku.', 'Lütfen faturayı cumaya kadar bana gönderin.', 'Пожалуйста, пришлите мне счёт до пятницы.', 'Будь ласка, надішліть мені рахунок.', '金曜日までに請求書を送ってください。', '请在星期五之前把发票寄给我。', '금요일까지 송장을 보내 주세요.', 'من فضلك أرسل لي الفاتورة قبل يوم الجمعة.', 'Skicka mig fakturan senast på fredag.', 'Pošlete mi prosím fakturu do pátku.', 'Lähetä minulle lasku perjantaihin mennessä.', 'Παρακαλώ στείλτε μου το τιμολόγιο.', 'אנא שלח לי את החשבונית עד יום שישי.', 'กรุณาส่งใบแจ้งหนี้ให้ฉันภายในวันศุกร์'],
  ],
  ['gateway.language', { language: 'deu_Latn', not: true }, ['Please send me the invoice.'], ['Das ist ein schöner Tag heute.']],

  [
    'gateway.gibberish',
    {},
    ['Please send me the invoice by Friday.', 'Angstschweiß und Borschtsch', 'strengths and rhythms of syzygy, more words here', 'Witaj, świecie! Chrząszcz brzmi w trzcinie', '漢字だけの文', '', '12345 67890', 'ok', 'Привет, как дела?', 'The HTTPS API uses JSON and YAML', 'function isOdd returns true', 'Où est la bibliothèque ?', '¿Dónde está la biblioteca?', 'Çok güzel bir gün', 'hello world', 'Matthew knows Schwarzkopf', 'Lorem ipsum dolor sit amet', 'see https://x.example/qwrtzxcv', '🙂🙂🙂', 'bookkeeping is a queue of quick questions'],
    ['asdfgh jklqw zxcvbn', 'qwrtpsdfg', 'xkcdqz wvxjq', 'hjkl hjkl hjkl', 'dfgjkl sdfkjh wkjrht', 'zzzzzzzz', 'aaaaaaaaaa', 'kjhsdf kjsdhf kjshdf', 'bvncmx qpwlsk', 'rtyfgh vbnmzx', 'sdkfjhskdjfh', 'lkjhgf dsapqw', 'mnbvcx lkjhgf', 'wqrtz pxqj', 'fghjkl', 'zxqj wvbk', 'tttttt', 'qzxv', 'vwxyzq bcdfg', 'xzcvb nmlkj hgfds'],
  ],
  ['gateway.gibberish', { not: true }, ['zxcvbnm qwrtp'], ['hello there']],
];
