// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

// Contracts that make EIP-3009 calls for others, as the payment trace meets them on real chains.
// Each is the least code that has its kind's interface; none is fit for money.

interface Token {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external;

    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) external;
}

/// The batcher that facilitators use (Multicall3's `aggregate3`): a call may fail alone.
contract Batcher {
    struct Call {
        address target;
        bool allowFailure;
        bytes callData;
    }

    function aggregate3(Call[] calldata calls) external payable {
        for (uint256 i = 0; i < calls.length; i++) {
            (bool ok, ) = calls[i].target.call(calls[i].callData);
            require(ok || calls[i].allowFailure, "Multicall3: call failed");
        }
    }
}

/// Takes payments itself and hides the call data: only a call trace tells the method.
contract Collector {
    Token private immutable token;

    constructor(Token token_) {
        token = token_;
    }

    function collect(address from, uint256[3] calldata terms, bytes32 nonce, bytes calldata signature) external {
        token.receiveWithAuthorization(from, address(this), terms[0], terms[1], terms[2], nonce, signature);
    }

    function collectVrs(
        address from,
        uint256[3] calldata terms,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        token.receiveWithAuthorization(from, address(this), terms[0], terms[1], terms[2], nonce, v, r, s);
    }
}

/// Passes its call data on to the token, as settlement proxies with the token's interface do.
contract Forwarder {
    address private immutable token;

    constructor(address token_) {
        token = token_;
    }

    fallback() external payable {
        (bool ok, bytes memory answer) = token.call(msg.data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
    }
}

/// A smart account (ERC-4337): anyone may use this one.
contract Account {
    function execute(address target, uint256 value, bytes calldata data) external {
        (bool ok, ) = target.call{value: value}(data);
        require(ok, "execute failed");
    }
}

/// The entry point's `handleOps` (0.7): an operation that fails leaves the bundle whole.
contract EntryPoint {
    struct PackedUserOperation {
        address sender;
        uint256 nonce;
        bytes initCode;
        bytes callData;
        bytes32 accountGasLimits;
        uint256 preVerificationGas;
        bytes32 gasFees;
        bytes paymasterAndData;
        bytes signature;
    }

    event UserOperation(address indexed sender, bool success);

    function handleOps(PackedUserOperation[] calldata ops, address payable) external {
        for (uint256 i = 0; i < ops.length; i++) {
            (bool ok, ) = ops[i].sender.call(ops[i].callData);
            emit UserOperation(ops[i].sender, ok);
        }
    }
}

/// Emits the events of a payment without being a token that anyone knows.
contract Impostor {
    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event Transfer(address indexed from, address indexed to, uint256 value);

    string public constant symbol = "FAKE";
    uint8 public constant decimals = 4;

    function pretend(address from, address to, uint256 value, bytes32 nonce) external {
        emit AuthorizationUsed(from, nonce);
        emit Transfer(from, to, value);
    }
}
