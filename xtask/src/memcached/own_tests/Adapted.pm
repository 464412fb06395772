# Loaded before memcached's own tests, whose library it changes in two places.
package Adapted;
use strict;
use warnings;
use MemcachedTest;

no warnings 'redefine';

# A command that only memcached's debug build has sets its clock forward. Here time passes.
*MemcachedTest::mem_move_time = sub { my ($sock, $seconds) = @_; CORE::sleep($seconds) };

# Statistics that there are not end with ERROR; the library would wait for END.
*MemcachedTest::mem_stats = sub {
    my ($sock, $kind) = @_;
    print $sock 'stats', ($kind ? " $kind" : ''), "\r\n";
    my %stats;
    while (<$sock>) {
        last if /^(\.|END|ERROR)/;
        $stats{$1} = $2 if /^(?:STAT|ITEM) (\S+)\s+([^\r\n]+)/;
    }
    return \%stats;
};

1;
