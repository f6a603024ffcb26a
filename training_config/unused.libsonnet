// Settings of base.libsonnet that a recipe does not use: it is an error to give one another value
// that changes nothing.
//
//   (import "base.libsonnet") + (import "unused.libsonnet")(["temperature"]) + { ... }

function(names) {
    local settings = self,
    local before = [super[name] for name in names],
    local without_effect = [
        names[i] + "::"
        for i in std.range(0, std.length(names) - 1)
        // A recipe that builds on this one may use the setting. What is compared is not judged.
        if settings[names[i]] != before[i]
           && settings { [names[i]]:: before[i], compared:: true } == settings
    ],
    assert "compared" in settings || without_effect == [] :
           "this recipe does not use %s, which would change nothing; leave it out, or change keys "
           % std.join(" and ", without_effect) + "of the configuration",
}
