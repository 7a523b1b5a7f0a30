package importer

// Spoiled is o for an import whose policy is changed before it is compared with the files.
func (o Options) Spoiled(by func(policy string) string) Options {
	o.spoil = by
	return o
}
