// This file arranges a list of rules so that a packet is tested against few of them. Adjacent rules that all test the same field become a Lookup. The
// value of that field in a packet selects a short list of the rules that can match the packet. The rules keep their order and all their tests. A
// lookup may select rules that do not match, but it never omits one that does. So the first rule that matches a packet remains the same.

package plan
