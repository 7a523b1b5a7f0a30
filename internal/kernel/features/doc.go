// Package features tells what the running kernel can do. That is found out by trying, never from its version: distributions add and leave
// out. Each function returns nil, or an error that says what the kernel lacks and since which version Linux has that.
//
//	if err := features.Egress(); err != nil { // the kernel has no TCX
//		note(err)
//	}
//	conn, err := features.Open() // asks drivers
package features
