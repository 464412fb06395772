package My::Suite::Varve;

@ISA = qw(My::Suite);

return "ha_varve.so is not in the plugin directory; run `cargo xtask mtr`" unless $ENV{HA_VARVE_SO};

bless { };
