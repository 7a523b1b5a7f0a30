// This file has the tests of protection from floods of SYNs and ACKs with real TCP on both sides: Linux clients,
// a scripted peer where Linux does not misbehave enough, and servers on the protected host or behind it.

package traffic
