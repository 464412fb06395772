# memcached.pl: clients of memcached. `client()` connects to the server's Unix socket; `ask` sends lines, each
# with its end, and prints what is answered, up to the answer to one more question: `mn`.
use strict;
use warnings;
use IO::Socket::UNIX;

sub client
{
  my $path= "$ENV{MYSQLTEST_VARDIR}/tmp/memcached.sock";
  for (1 .. 300)
  {
    my $client= IO::Socket::UNIX->new(Peer => $path);
    return $client if $client;
    select(undef, undef, undef, 0.1);
  }
  die "nobody listens on $path";
}

sub answers
{
  my ($client, @lines)= @_;
  print $client map("$_\r\n", @lines), "mn\r\n";
  my @answers;
  while (my $line= <$client>)
  {
    $line =~ s/\r\n$//;
    return @answers if $line eq 'MN';
    push @answers, $line;
  }
  die "the connection is closed";
}

sub ask
{
  my ($client, @lines)= @_;
  print "> $_\n" for @lines;
  print "$_\n" for answers($client, @lines);
}

1;
