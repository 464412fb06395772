// What memjs (binary protocol) is told by the server on a port of this machine.
const memjs = require('memjs');

const c = memjs.Client.create(`127.0.0.1:${process.argv[2]}`, { retries: 0, timeout: 30 });

async function say(what, ...calls) {
  const told = [];
  for (const call of calls) {
    try {
      const result = await call();
      const isItem = result && typeof result === 'object' && 'value' in result && 'flags' in result;
      told.push(isItem ? [String(result.value).slice(0, 100), result.flags && String(result.flags)] : result);
    } catch (error) {
      told.push(String(error.message));
    }
  }
  console.log(`${what}: ${JSON.stringify(told)}`);
}

async function ask() {
  await say('flush', async () => Object.values(await c.flush()));
  await say('get of none', () => c.get('a'));
  await say('set', () => c.set('a', 'one', { expires: 0 }), () => c.get('a'));
  await say('add', () => c.add('a', 'x', {}), () => c.add('added', 'x', {}));
  await say('replace', () => c.replace('a', 'uno', {}), () => c.replace('no', 'x', {}), () => c.get('a'));
  await say('append', () => c.append('a', '!'), () => c.prepend('a', '<'), () => c.get('a'));
  await say('append to none', () => c.append('no', '!'));
  await say('number', () => c.increment('n', 5, { initial: 10 }), () => c.increment('n', 5, {}),
    () => c.decrement('n', 100, {}), () => c.get('n'));
  await say('no number', () => c.increment('a', 1, {}));
  await say('touch', () => c.touch('a', 100), () => c.touch('no', 100));
  await say('delete', () => c.delete('a'), () => c.delete('a'), () => c.get('a'));
  const binary = Buffer.from([...Array(256).keys()]);
  await say('bytes', () => c.set('bytes', binary, {}),
    async () => binary.equals((await c.get('bytes')).value));
  const large = Buffer.alloc(1000000, 'x');
  await say('large', () => c.set('large', large, {}),
    async () => large.equals((await c.get('large')).value));
  await say('too large', () => c.set('larger', Buffer.alloc(3000000, 'x'), {}), () => c.get('larger'));
  await say('unicode', () => c.set('schlüssel', 'wert\u2713', {}), () => c.get('schlüssel'));
  await say('expires', () => c.set('e', 'x', { expires: 2 }), () => c.get('e'));
  await new Promise((resolve) => setTimeout(resolve, 3100));
  await say('has expired', () => c.get('e'));
  const many = [...Array(200).keys()];
  await say('set many', () => Promise.all(many.map((n) => c.set(`m${n}`, `${n}`, {}))));
  const get = async (n) => String((await c.get(`m${n}`)).value) === `${n}`;
  await say('get many', () => Promise.all(many.map(get)));
  c.quit();
}

ask();
