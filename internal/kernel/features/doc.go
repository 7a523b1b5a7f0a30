// Package features tells what the running kernel can do. That is found out by trying, never from its version: distributions add and leave
// out. A function named after a feature returns nil, or an error that says what the kernel lacks and since which version Linux has that.
//
//	if err := features.Egress(); err != nil { // the kernel has neither TCX nor clsact
//		note(err)
//	}
//	conn, err := features.Open() // of which drivers are asked
package features
