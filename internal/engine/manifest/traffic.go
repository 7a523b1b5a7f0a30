// This file counts the packets that come to a network namespace, and which ways they go. Rules are placed by it.

package manifest
