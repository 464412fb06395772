# What Perl's Cache::Memcached (text protocol) is told by the server on a port of this machine.
use strict;
use warnings;
use Cache::Memcached;

my $c = Cache::Memcached->new({ servers => ["127.0.0.1:$ARGV[0]"], compress_threshold => 1_000_000_000 });

sub told {
    my ($what, @told) = @_;
    print "$what: ", join(', ', map { defined $_ ? substr($_, 0, 100) : 'undef' } @told), "\n";
}

told('flush_all', $c->flush_all);
told('get of none', scalar $c->get('a'));
told('set', $c->set('a', 'one'), $c->get('a'));
told('reference', $c->set('r', { x => [1, 2] }), $c->get('r')->{x}[1]);
my $many = $c->get_multi(qw(a no r));
told('get_multi', join ' ', sort keys %$many);
told('add', $c->add('a', 'x'), $c->add('added', 'x'));
told('replace', $c->replace('a', 'uno'), $c->replace('no', 'x'), $c->get('a'));
told('number', $c->set('n', 10), $c->incr('n', 5), $c->decr('n', 100), $c->incr('no'));
told('append', $c->append('a', '!'), $c->prepend('a', '<'), $c->append('no', '!'), $c->get('a'));
told('delete', $c->delete('a'), $c->delete('a'), scalar $c->get('a'));
my $binary = join '', map { chr } 0 .. 255, 13, 10;
told('bytes', $c->set('bytes', $binary), $c->get('bytes') eq $binary);
my $large = 'x' x 1_000_000;
told('large', $c->set('large', $large), $c->get('large') eq $large);
told('too large', $c->set('larger', $large x 3), scalar $c->get('larger'));
$c->enable_compress(1);
$c->set_compress_threshold(1000);
told('compressed', $c->set('z', $large x 3), $c->get('z') eq $large x 3);
told('expires', $c->set('e', 'x', 2), $c->get('e'));
select undef, undef, undef, 3.1;
told('has expired', scalar $c->get('e'));
told('statistics', exists $c->stats(['misc'])->{total}{cmd_get});
$c->disconnect_all;
