// SPDX-License-Identifier: Apache-2.0

// Package features finds out which features the running kernel has. It tries each feature and never looks at the kernel's version, because
// distributions add and remove features. A function named after a feature returns nil, or an error that says what the kernel lacks and since which
// version Linux has it.
//
//	if err := features.Egress(); err != nil { // the kernel has neither TCX nor clsact
//		note(err)
//	}
//	conn, err := features.Open() // asks the drivers of devices
package features
