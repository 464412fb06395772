<?php
// What PHP's memcached extension, which is libmemcached, is told by the server on a port of this machine, in
// both protocols.
function say($what, ...$told) {
    echo $what, ': ', substr(json_encode($told, JSON_PARTIAL_OUTPUT_ON_ERROR), 0, 300), "\n";
}

foreach ([false, true] as $binary) {
    say('binary', $binary);
    $c = new Memcached();
    $c->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $c->addServer('127.0.0.1', (int) $argv[1]);
    say('flush', $c->flush());
    say('get of none', $c->get('a'), $c->getResultCode());
    say('set', $c->set('a', 'one'), $c->get('a'));
    say('types', $c->set('i', 7), $c->get('i'), $c->set('d', 1.5), $c->get('d'));
    say('array', $c->set('l', [1, 'x' => null]), $c->get('l'));
    say('setMulti', $c->setMulti(['b' => 'two', 'c' => 'three']), $c->getMulti(['a', 'no', 'b', 'c']));
    say('add', $c->add('a', 'x'), $c->getResultCode(), $c->add('added', 'x'));
    say('replace', $c->replace('a', 'uno'), $c->replace('no', 'x'), $c->getResultCode());
    $item = $c->get('a', null, Memcached::GET_EXTENDED);
    say('extended', $item['value'], $item['flags'], $item['cas'] > 0);
    $cas = $item['cas'];
    say('cas', $c->cas($cas, 'a', 'new'), $c->cas($cas, 'a', 'newer'), $c->getResultCode(), $c->get('a'));
    $c->setOption(Memcached::OPT_COMPRESSION, false);
    say('append', $c->append('a', '!'), $c->prepend('a', '<'), $c->get('a'));
    say('append to none', $c->append('no', '!'), $c->getResultCode());
    say('number', $c->set('n', 10), $c->increment('n', 5), $c->decrement('n', 100), $c->get('n'));
    say('number of none', $c->increment('no', 1), $c->getResultCode());
    if ($binary) {
        say('number is made', $c->increment('made', 5, 9), $c->increment('made', 5, 9));
    }
    say('touch', $c->touch('a', 100), $c->touch('no', 100), $c->getResultCode());
    say('delete', $c->delete('a'), $c->delete('a'), $c->getResultCode());
    say('deleteMulti', $c->deleteMulti(['b', 'no']));
    $bytes = implode('', array_map('chr', range(0, 255))) . "\r\n";
    say('bytes', $c->set('bytes', $bytes), $c->get('bytes') === $bytes);
    $large = str_repeat('0123456789', 100000);
    say('large', $c->set('large', $large), $c->get('large') === $large);
    say('too large', $c->set('larger', str_repeat($large, 3)), $c->getResultCode(), $c->get('larger'));
    $c->setOption(Memcached::OPT_COMPRESSION, true);
    say('compressed', $c->set('z', str_repeat($large, 3)), $c->get('z') === str_repeat($large, 3));
    say('expires', $c->set('e', 'x', 2), $c->get('e'));
    usleep(3100000);
    say('has expired', $c->get('e'), $c->getResultCode());
    say('statistics', isset(current($c->getStats())['cmd_get']));
    $c->setOption(Memcached::OPT_NO_BLOCK, true);
    say('flush', $c->flush(), $c->get('d'));
    $c->quit();
}
