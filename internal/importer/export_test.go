// SPDX-License-Identifier: Apache-2.0

package importer

// Spoiled returns o with a function that changes the policy before it is compared with the files.
func (o Options) Spoiled(by func(policy string) string) Options {
	o.spoil = by
	return o
}
