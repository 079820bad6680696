// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

// Stand-ins for the escrows of batch-settlement and auth-capture, with the interface in the official
// SDKs and the events of the published contracts. None is fit for money.

interface Money {
    function transfer(address to, uint256 value) external returns (bool);

    function transferFrom(address from, address to, uint256 value) external returns (bool);

    function balanceOf(address account) external view returns (uint256);

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

interface DepositSource {
    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external;
}

/// Collects a deposit with the payer's authorization, whose nonce is derived from the channel.
contract DepositCollectorStandIn is DepositSource {
    function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes calldata data) external {
        (uint256 start, uint256 end, uint256 salt, bytes memory signature) =
            abi.decode(data, (uint256, uint256, uint256, bytes));
        bytes32 nonce = keccak256(abi.encode(channelId, salt));
        Money(token).receiveWithAuthorization(payer, address(this), amount, start, end, nonce, signature);
        Money(token).transfer(msg.sender, amount);
    }
}

/// Takes a deposit from its caller in the name of any payer: whoever funds a channel chooses its payer.
contract GenerousCollector is DepositSource {
    function collect(address, address token, uint256 amount, bytes32, bytes calldata data) external {
        Money(token).transferFrom(abi.decode(data, (address)), msg.sender, amount);
    }
}

contract BatchSettlementStandIn {
    struct ChannelConfig {
        address payer;
        address payerAuthorizer;
        address receiver;
        address receiverAuthorizer;
        address token;
        uint40 withdrawDelay;
        bytes32 salt;
    }

    struct Voucher {
        ChannelConfig channel;
        uint128 maxClaimableAmount;
    }

    struct VoucherClaim {
        Voucher voucher;
        bytes signature;
        uint128 totalClaimed;
    }

    event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance);
    event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed);
    event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount);
    event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount);

    mapping(bytes32 => uint128) public balances;
    mapping(bytes32 => uint128) public claimed;
    mapping(address => mapping(address => uint128)) public owed;

    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool ok, bytes memory result) = address(this).delegatecall(data[i]);
            require(ok, "multicall failed");
            results[i] = result;
        }
    }

    function deposit(ChannelConfig calldata config, uint128 amount, address collector, bytes calldata data) external {
        bytes32 id = getChannelId(config);
        uint256 before = Money(config.token).balanceOf(address(this));
        DepositSource(collector).collect(config.payer, config.token, amount, id, data);
        require(Money(config.token).balanceOf(address(this)) == before + amount, "DepositCollectionFailed");
        balances[id] += amount;
        emit Deposited(id, msg.sender, amount, balances[id]);
    }

    function claim(VoucherClaim[] calldata claims) external {
        for (uint256 i = 0; i < claims.length; i++) {
            ChannelConfig calldata channel = claims[i].voucher.channel;
            require(
                msg.sender == channel.receiver || msg.sender == channel.receiverAuthorizer, "NotAuthorizedToClaim"
            );
            _claim(claims[i]);
        }
    }

    function settle(address receiver, address token) external {
        uint128 amount = owed[receiver][token];
        if (amount == 0) return;
        owed[receiver][token] = 0;
        Money(token).transfer(receiver, amount);
        emit Settled(receiver, token, msg.sender, amount);
    }

    function refund(ChannelConfig calldata config, uint128 amount) external {
        require(msg.sender == config.receiver || msg.sender == config.receiverAuthorizer, "NotAuthorizedToRefund");
        bytes32 id = getChannelId(config);
        require(amount <= balances[id] - claimed[id], "too much");
        balances[id] -= amount;
        emit Refunded(id, msg.sender, amount);
        Money(config.token).transfer(config.payer, amount);
    }

    function getChannelId(ChannelConfig calldata config) public view returns (bytes32) {
        bytes32 typehash = keccak256(
            "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
        );
        return _digest(keccak256(abi.encode(typehash, config)));
    }

    function getVoucherDigest(bytes32 channelId, uint128 maxClaimableAmount) public view returns (bytes32) {
        bytes32 typehash = keccak256("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
        return _digest(keccak256(abi.encode(typehash, channelId, maxClaimableAmount)));
    }

    function _digest(bytes32 hash) private view returns (bytes32) {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("x402 Batch Settlement"),
                keccak256("1"),
                block.chainid,
                address(this)
            )
        );
        return keccak256(abi.encodePacked("\x19\x01", domain, hash));
    }

    function _claim(VoucherClaim calldata row) private {
        ChannelConfig calldata channel = row.voucher.channel;
        bytes32 id = getChannelId(channel);
        if (row.totalClaimed <= claimed[id]) return;
        require(row.totalClaimed <= row.voucher.maxClaimableAmount, "ClaimExceedsCeiling");
        require(row.totalClaimed <= balances[id], "ClaimExceedsBalance");
        bytes32 digest = getVoucherDigest(id, row.voucher.maxClaimableAmount);
        address signer = ecrecover(
            digest, uint8(row.signature[64]), bytes32(row.signature[0:32]), bytes32(row.signature[32:64])
        );
        address wanted = channel.payerAuthorizer == address(0) ? channel.payer : channel.payerAuthorizer;
        require(signer == wanted && signer != address(0), "InvalidSignature");
        uint128 amount = row.totalClaimed - claimed[id];
        claimed[id] = row.totalClaimed;
        owed[channel.receiver][channel.token] += amount;
        emit Claimed(id, msg.sender, amount, row.totalClaimed);
    }
}

struct PaymentInfo {
    address operator;
    address payer;
    address receiver;
    address token;
    uint120 maxAmount;
    uint48 preApprovalExpiry;
    uint48 authorizationExpiry;
    uint48 refundExpiry;
    uint16 minFeeBps;
    uint16 maxFeeBps;
    address feeReceiver;
    uint256 salt;
}

interface TokenSource {
    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata data) external;
}

/// Collects a payment with the payer's authorization, whose nonce is the payment's hash without payer.
contract PaymentCollectorStandIn is TokenSource {
    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata data) external {
        PaymentInfo memory agnostic = info;
        agnostic.payer = address(0);
        bytes32 nonce = AuthCaptureStandIn(msg.sender).getHash(agnostic);
        Money(info.token).receiveWithAuthorization(
            info.payer, address(this), info.maxAmount, 0, info.preApprovalExpiry, nonce, data
        );
        Money(info.token).transfer(store, amount);
        if (info.maxAmount > amount) Money(info.token).transfer(info.payer, info.maxAmount - amount);
    }
}

/// Takes the money of a refund from the payment's operator, who allowed it.
contract RefundCollectorStandIn is TokenSource {
    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata) external {
        Money(info.token).transferFrom(info.operator, store, amount);
    }
}

/// Holds the money of one operator's payments.
contract TokenStoreStandIn {
    address private immutable escrow = msg.sender;

    function sendTokens(address token, address to, uint256 amount) external {
        require(msg.sender == escrow, "OnlyEscrow");
        Money(token).transfer(to, amount);
    }
}

abstract contract AuthCaptureStandIn {
    event PaymentAuthorized(bytes32 indexed paymentInfoHash, PaymentInfo paymentInfo, uint256 amount, address tokenCollector);
    event PaymentVoided(bytes32 indexed paymentInfoHash, uint256 amount);
    event PaymentRefunded(bytes32 indexed paymentInfoHash, uint256 amount, address tokenCollector);
    event TokenStoreCreated(address indexed operator, address tokenStore);

    mapping(bytes32 => uint256) public capturable;
    mapping(bytes32 => uint256) public refundable;

    modifier onlyOperator(PaymentInfo calldata info) {
        require(msg.sender == info.operator, "InvalidSender");
        _;
    }

    function getHash(PaymentInfo memory info) public view returns (bytes32) {
        bytes32 typehash = keccak256(
            "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)"
        );
        return keccak256(abi.encode(block.chainid, address(this), keccak256(abi.encode(typehash, info))));
    }

    function authorize(PaymentInfo calldata info, uint256 amount, address collector, bytes calldata data)
        external
        onlyOperator(info)
    {
        bytes32 hash = getHash(info);
        capturable[hash] = amount;
        emit PaymentAuthorized(hash, info, amount, collector);
        TokenSource(collector).collectTokens(info, _storeAddress(info.operator), amount, data);
    }

    function void(PaymentInfo calldata info) external onlyOperator(info) {
        bytes32 hash = getHash(info);
        uint256 amount = capturable[hash];
        capturable[hash] = 0;
        emit PaymentVoided(hash, amount);
        _store(info.operator).sendTokens(info.token, info.payer, amount);
    }

    function refund(PaymentInfo calldata info, uint256 amount, address collector, bytes calldata data)
        external
        onlyOperator(info)
    {
        bytes32 hash = getHash(info);
        refundable[hash] -= amount;
        emit PaymentRefunded(hash, amount, collector);
        TokenSource(collector).collectTokens(info, _storeAddress(info.operator), amount, data);
        _store(info.operator).sendTokens(info.token, info.payer, amount);
    }

    function _captured(PaymentInfo calldata info, bytes32 hash, uint256 amount) internal {
        capturable[hash] -= amount;
        refundable[hash] += amount;
        require(amount <= info.maxAmount, "ExceedsMaxAmount");
    }

    function _distribute(PaymentInfo calldata info, uint256 amount, uint256 fee, address feeReceiver) internal {
        TokenStoreStandIn store = _store(info.operator);
        if (fee > 0) store.sendTokens(info.token, feeReceiver, fee);
        if (amount > fee) store.sendTokens(info.token, info.receiver, amount - fee);
    }

    function _storeAddress(address operator) internal view returns (address) {
        bytes32 salt = bytes32(bytes20(operator));
        bytes32 code = keccak256(type(TokenStoreStandIn).creationCode);
        return address(uint160(uint256(keccak256(abi.encodePacked(bytes1(0xff), address(this), salt, code)))));
    }

    /// A store receives money before it exists; it is created when it first sends some.
    function _store(address operator) internal returns (TokenStoreStandIn store) {
        store = TokenStoreStandIn(_storeAddress(operator));
        if (address(store).code.length == 0) {
            new TokenStoreStandIn{salt: bytes32(bytes20(operator))}();
            emit TokenStoreCreated(operator, address(store));
        }
    }
}

/// Version 1.0: fees in basis points.
contract AuthCapture10StandIn is AuthCaptureStandIn {
    event PaymentCharged(
        bytes32 indexed paymentInfoHash,
        PaymentInfo paymentInfo,
        uint256 amount,
        address tokenCollector,
        uint16 feeBps,
        address feeReceiver
    );
    event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint16 feeBps, address feeReceiver);

    function charge(
        PaymentInfo calldata info,
        uint256 amount,
        address collector,
        bytes calldata data,
        uint16 feeBps,
        address feeReceiver
    ) external onlyOperator(info) {
        bytes32 hash = getHash(info);
        refundable[hash] = amount;
        emit PaymentCharged(hash, info, amount, collector, feeBps, feeReceiver);
        TokenSource(collector).collectTokens(info, _storeAddress(info.operator), amount, data);
        _distribute(info, amount, amount * feeBps / 10_000, feeReceiver);
    }

    function capture(PaymentInfo calldata info, uint256 amount, uint16 feeBps, address feeReceiver)
        external
        onlyOperator(info)
    {
        bytes32 hash = getHash(info);
        _captured(info, hash, amount);
        emit PaymentCaptured(hash, amount, feeBps, feeReceiver);
        _distribute(info, amount, amount * feeBps / 10_000, feeReceiver);
    }
}

/// Version 1.1: fees as amounts.
contract AuthCapture11StandIn is AuthCaptureStandIn {
    event PaymentCharged(
        bytes32 indexed paymentInfoHash,
        PaymentInfo paymentInfo,
        uint256 amount,
        address tokenCollector,
        uint256 feeAmount,
        address feeReceiver
    );
    event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint256 feeAmount, address feeReceiver);

    function charge(
        PaymentInfo calldata info,
        uint256 amount,
        address collector,
        bytes calldata data,
        uint256 feeAmount,
        address feeReceiver
    ) external onlyOperator(info) {
        bytes32 hash = getHash(info);
        refundable[hash] = amount;
        emit PaymentCharged(hash, info, amount, collector, feeAmount, feeReceiver);
        TokenSource(collector).collectTokens(info, _storeAddress(info.operator), amount, data);
        _distribute(info, amount, feeAmount, feeReceiver);
    }

    function capture(PaymentInfo calldata info, uint256 amount, uint256 feeAmount, address feeReceiver)
        external
        onlyOperator(info)
    {
        bytes32 hash = getHash(info);
        _captured(info, hash, amount);
        emit PaymentCaptured(hash, amount, feeAmount, feeReceiver);
        _distribute(info, amount, feeAmount, feeReceiver);
    }
}

/// An operator contract that hides the escrow's call data in a function of its own.
contract OperatorStandIn {
    function approve(address token, address spender) external {
        (bool ok, ) = token.call(abi.encodeWithSignature("approve(address,uint256)", spender, type(uint256).max));
        require(ok, "approve failed");
    }

    function authorizeFor(AuthCaptureStandIn escrow, PaymentInfo calldata info, address collector, bytes calldata data)
        external
    {
        escrow.authorize(info, info.maxAmount, collector, data);
    }

    function captureFor(AuthCapture11StandIn escrow, PaymentInfo calldata info, uint256 amount, uint256 fee) external {
        escrow.capture(info, amount, fee, info.feeReceiver);
    }

    function refundFor(AuthCaptureStandIn escrow, PaymentInfo calldata info, uint256 amount, address collector)
        external
    {
        escrow.refund(info, amount, collector, "");
    }
}

/// An account that its owner's key signs for (ERC-1271).
contract Wallet {
    address private immutable owner;

    constructor(address owner_) {
        owner = owner_;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        address signer =
            ecrecover(hash, uint8(signature[64]), bytes32(signature[0:32]), bytes32(signature[32:64]));
        return signer == owner ? bytes4(0x1626ba7e) : bytes4(0xffffffff);
    }
}

/// Deploys wallets at addresses that are known before (ERC-6492).
contract WalletFactory {
    function deploy(address owner) external {
        new Wallet{salt: 0}(owner);
    }

    function locate(address owner) external view returns (address) {
        bytes32 code = keccak256(abi.encodePacked(type(Wallet).creationCode, abi.encode(owner)));
        return address(uint160(uint256(keccak256(abi.encodePacked(bytes1(0xff), address(this), bytes32(0), code)))));
    }
}
