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

interface Spendable {
    function transferFrom(address from, address to, uint256 value) external returns (bool);
}

/// Stand-in for Uniswap's Permit2: verifies the payer's signature over token, amount, spender, nonce,
/// deadline and witness, uses each nonce once, and transfers.
contract Permit2StandIn {
    struct TokenPermissions {
        address token;
        uint256 amount;
    }

    struct PermitTransferFrom {
        TokenPermissions permitted;
        uint256 nonce;
        uint256 deadline;
    }

    struct SignatureTransferDetails {
        address to;
        uint256 requestedAmount;
    }

    mapping(address => mapping(uint256 => bool)) public used;

    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 witness,
        string calldata witnessType,
        bytes calldata signature
    ) external {
        require(block.timestamp <= permit.deadline, "SignatureExpired");
        require(details.requestedAmount <= permit.permitted.amount, "InvalidAmount");
        require(!used[owner][permit.nonce], "InvalidNonce");
        used[owner][permit.nonce] = true;
        bytes32 digest = keccak256(
            abi.encodePacked("\x19\x01", _domain(), _message(permit, witness, witnessType))
        );
        require(_signer(digest, signature) == owner && owner != address(0), "InvalidSigner");
        Spendable(permit.permitted.token).transferFrom(owner, details.to, details.requestedAmount);
    }

    function _domain() private view returns (bytes32) {
        bytes32 typehash = keccak256(
            "EIP712Domain(string name,uint256 chainId,address verifyingContract)"
        );
        return keccak256(abi.encode(typehash, keccak256("Permit2"), block.chainid, address(this)));
    }

    function _message(
        PermitTransferFrom calldata permit,
        bytes32 witness,
        string calldata witnessType
    ) private view returns (bytes32) {
        bytes32 typehash = keccak256(
            abi.encodePacked(
                "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,",
                witnessType
            )
        );
        bytes32 permitted = keccak256(
            abi.encode(
                keccak256("TokenPermissions(address token,uint256 amount)"),
                permit.permitted.token,
                permit.permitted.amount
            )
        );
        return keccak256(
            abi.encode(typehash, permitted, msg.sender, permit.nonce, permit.deadline, witness)
        );
    }

    function _signer(bytes32 digest, bytes calldata signature) private pure returns (address) {
        return ecrecover(
            digest, uint8(signature[64]), bytes32(signature[0:32]), bytes32(signature[32:64])
        );
    }
}

/// Stand-ins for the x402 proxies, with the interface in the official SDKs.
abstract contract ProxyStandIn {
    address constant PERMIT2 = 0x000000000022D473030F116dDEE9F6B43aC78BA3;

    struct EIP2612Permit {
        uint256 value;
        uint256 deadline;
        bytes32 r;
        bytes32 s;
        uint8 v;
    }

    event Settled();
    event SettledWithPermit();

    function _pay(
        Permit2StandIn.PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        address to,
        bytes32 witness,
        string memory witnessType,
        bytes calldata signature
    ) internal {
        require(amount > 0, "InvalidAmount");
        Permit2StandIn(PERMIT2).permitWitnessTransferFrom(
            permit,
            Permit2StandIn.SignatureTransferDetails({to: to, requestedAmount: amount}),
            owner,
            witness,
            witnessType,
            signature
        );
    }
}

contract ExactProxyStandIn is ProxyStandIn {
    struct Witness {
        address to;
        uint256 validAfter;
    }

    string constant TYPE =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,uint256 validAfter)";

    function settle(
        Permit2StandIn.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        _settle(permit, owner, witness, signature);
        emit Settled();
    }

    function settleWithPermit(
        EIP2612Permit calldata,
        Permit2StandIn.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        _settle(permit, owner, witness, signature);
        emit SettledWithPermit();
    }

    function _settle(
        Permit2StandIn.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) private {
        bytes32 hash = keccak256(
            abi.encode(keccak256("Witness(address to,uint256 validAfter)"), witness.to, witness.validAfter)
        );
        _pay(permit, permit.permitted.amount, owner, witness.to, hash, TYPE, signature);
    }
}

contract UptoProxyStandIn is ProxyStandIn {
    struct Witness {
        address to;
        address facilitator;
        uint256 validAfter;
    }

    string constant TYPE =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)";

    function settle(
        Permit2StandIn.PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external {
        require(msg.sender == witness.facilitator, "InvalidFacilitator");
        bytes32 hash = keccak256(
            abi.encode(
                keccak256("Witness(address to,address facilitator,uint256 validAfter)"),
                witness.to,
                witness.facilitator,
                witness.validAfter
            )
        );
        _pay(permit, amount, owner, witness.to, hash, TYPE, signature);
        emit Settled();
    }
}
